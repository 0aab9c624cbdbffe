"""Tables whose files hold cells with types of their own, as Excel and SQLite have them: a task reads each file, and converts its cells to
the types of the schema's columns.

A cell has a type of its own, which the schema does not decide: a value of another sort is a fault of its row, and is never guessed at.
A text is no number, since 007 would become 7. A number is whole if it has no fraction, since Excel keeps all numbers as floats. Dates and
times may be texts as ISO 8601 writes them, since SQLite has no others. An empty text is NULL.
"""

import json
import math
import re
import sys
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from functools import cached_property, partial
from itertools import islice
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from pipelines.config.source.source import Table
from pipelines.data.sources.base import Rows, distribute
from pipelines.data.sources.cell_files import CellFault, FileReader
from pipelines.data.sources.files.file_table import FileTable, stats
from pipelines.data.sources.files.files import find
from pipelines.data.sources.files.listing import File, WholeFiles
from pipelines.data.sources.text.parsed import FILE, LINE, PROBLEM, RANGE, RECORD, parse_schema
from pipelines.data.versions.raw_inputs import SourceFile
from pipelines.errors import ConfigError

CellSettings = TypeVar("CellSettings", bound=Table)
_ROWS_PER_BATCH = 2_000
_BITS: dict[type[T.DataType], int] = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64}
TYPES: tuple[type[T.DataType], ...] = (
    *(T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType, T.DecimalType, T.BooleanType),
    *(T.StringType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType),
)
"""The types of columns that cells can be converted to."""
_EXACT = 2**53
"""Below it, a float of Excel's is exactly the whole number that was typed."""
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?|[+-]?\.[0-9]+", re.ASCII)
_LARGEST_FLOAT = 3.4028235677973366e38
"""From here on, a number is rounded to an infinite float of 32 bits."""
_RECORD_LENGTH = 10_000


class CellTable(FileTable[CellSettings]):
    """Rows with a cell of another type than its column are malformed, as records of CSV are."""

    @cached_property
    def schema(self) -> T.StructType:
        schema = parse_schema(self.name, self.settings.ddl)
        if wrong := next((field for field in schema if not isinstance(field.dataType, TYPES)), None):
            raise ConfigError(
                f"source.tables.{self.name}.schema: {wrong.name} is {wrong.dataType.simpleString()}, which no cell of "
                f"{self.settings.format} holds; choose a number, boolean, string, binary, date or timestamp"
            )
        return schema

    @property
    @abstractmethod
    def reader(self) -> FileReader:
        """Reads one file."""

    def select(self, files: Sequence[File]) -> Sequence[File]:
        """The files at the table's path that hold rows, without those that a program keeps beside them."""
        return files

    @cached_property
    def files(self) -> Sequence[File]:
        return self.select(find(self.settings.path))

    def state(self) -> Sequence[SourceFile]:
        return stats(self.select(find(self.settings.path)))

    def empty(self, spark: SparkSession) -> DataFrame:
        added = [T.StructField(self.settings.file_column, T.StringType())] if self.settings.file_column else []
        return spark.createDataFrame([], T.StructType([*self.schema, *added]))

    def rows(self, spark: SparkSession) -> Rows:
        ranges = WholeFiles(self.files)
        work = [(number, file.path, self.relative_name(file.path)) for number, file in enumerate(self.files)]
        origin = [(PROBLEM, T.StringType()), (RECORD, T.StringType()), (RANGE, T.IntegerType()), (LINE, T.LongType())]
        file = [(FILE, T.StringType())] if self.settings.file_column else []
        nullable = [T.StructField(column.name, column.dataType) for column in self.schema]
        schema = T.StructType([*nullable, *(T.StructField(name, kind) for name, kind in [*origin, *file])])
        arrow = to_arrow_schema(schema, timezone=str(spark.conf.get("spark.sql.session.timeZone")))
        rows = distribute(spark, work, partial(_read, self.reader, self.schema, arrow), schema)
        return Rows(rows.withColumnRenamed(FILE, self.settings.file_column) if file else rows, None, ranges)

    def identity_lines(self, files: Sequence[SourceFile], statements: Collection[str]) -> Iterator[str]:
        yield from self.content_lines(files, with_names=bool(self.settings.file_column))


def _read(reader: FileReader, columns: T.StructType, schema: pa.Schema, work: tuple[int, str, str]) -> Iterator[pa.RecordBatch]:
    number, path, name = work
    rows = reader(path, columns.names)
    while batch := list(islice(rows, _ROWS_PER_BATCH)):
        lines, values = zip(*batch, strict=True)
        yield to_record_batch(values, lines, columns, schema, number, name)


class MisfitError(ValueError):
    """Says what the value of a cell is, which its column cannot hold."""


def to_record_batch(
    rows: Sequence[Sequence[Any]], lines: Sequence[int], columns: T.StructType, schema: pa.Schema, file: int, file_name: str
) -> pa.RecordBatch:
    """A batch with the `schema`: that of the `columns`, then `parsed.PROBLEM`, RECORD, RANGE and LINE, and, if the schema has it, FILE. A
    row with a fault has NULL in the cell that has it."""
    problems: list[str | None] = [None] * len(rows)
    arrays = []
    for position, (column, field) in enumerate(zip(columns, schema, strict=False)):
        values, misfits = convert_column([row[position] for row in rows], column)
        arrays.append(pa.array(values, field.type))
        for number, misfit in misfits.items():
            problems[number] = problems[number] or misfit
    records = [None if problem is None else record_text(row) for row, problem in zip(rows, problems, strict=True)]
    faulty_lines = [None if problem is None else line for line, problem in zip(lines, problems, strict=True)]
    origin = [pa.array(problems, pa.string()), pa.array(records, pa.string()), pa.repeat(pa.scalar(file, pa.int32()), len(rows))]
    names = [pa.repeat(file_name, len(rows))] * (len(schema) - len(arrays) - 4)
    return pa.record_batch([*arrays, *origin, pa.array(faulty_lines, pa.int64()), *names], schema=schema)


def convert_column(values: Sequence[Any], column: T.StructField) -> tuple[list[Any], dict[int, str]]:
    """The values in the column's type, NULL for those that it cannot hold, and the faults of these by their place."""
    convert = converter(column.dataType)
    converted: list[Any] = []
    misfits: dict[int, str] = {}
    for number, value in enumerate(values):
        try:
            converted.append(None if value is None or value == "" else convert(value))
        except MisfitError as misfit:
            converted.append(None)
            misfits[number] = f"{column.name} is {misfit}, not {column.dataType.simpleString()}"
        if converted[-1] is None and not column.nullable:
            misfits.setdefault(number, f"NULL in {column.name}, which is NOT NULL")
    return converted, misfits


def record_text(row: Sequence[Any]) -> str:
    """A row as the quarantine shows it: a list in JSON."""
    values: list[Any] = []
    for value in row:
        match value:
            case CellFault():
                values.append(value.name)
            case bytes():
                values.append(f"{len(value):,} bytes")
            case float() if not math.isfinite(value):
                values.append(str(value))
            case _:
                values.append(value)
    return json.dumps(values, ensure_ascii=False, default=str)[:_RECORD_LENGTH]


def converter(kind: T.DataType) -> Callable[[Any], Any]:
    """A function from a cell's value to one of the type; it raises MisfitError."""
    match kind:
        case T.ByteType() | T.ShortType() | T.IntegerType() | T.LongType():
            bits = _BITS[type(kind)]
            return lambda value: _whole_number(value, bits)
        case T.FloatType() | T.DoubleType():
            limit = _LARGEST_FLOAT if isinstance(kind, T.FloatType) else math.inf
            return lambda value: _float(value, limit)
        case T.DecimalType():
            return lambda value: _decimal(value, kind.precision, kind.scale)
        case T.TimestampType() | T.TimestampNTZType():
            return lambda value: _moment(value, has_zone=isinstance(kind, T.TimestampType))
    return {T.BooleanType: _truth, T.StringType: _text, T.BinaryType: _bytes, T.DateType: _date}[type(kind)]


def _misfit(value: Any) -> MisfitError:
    match value:
        case CellFault():
            return MisfitError(value.name)
        case bool():
            return MisfitError("true or false")
        case float() if not math.isfinite(value):
            return MisfitError("no finite number")
        case int() | float():
            return MisfitError("a number")
        case str():
            return MisfitError("text")
        case bytes():
            return MisfitError("bytes")
        case datetime():
            return MisfitError("a time")
        case date():
            return MisfitError("a date")
        case time() | timedelta():
            return MisfitError("a time of day or a duration")
    return MisfitError(f"a {type(value).__name__}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and (isinstance(value, int) or math.isfinite(value))


def _whole_number(value: Any, bits: int) -> int:
    if not _is_number(value):
        raise _misfit(value)
    if value != int(value):
        raise MisfitError("a number with a fraction")
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise MisfitError("out of range")
    return int(value)


def _float(value: Any, limit: float) -> float:
    if not _is_number(value):
        raise _misfit(value)
    if abs(value) >= limit or abs(value) > sys.float_info.max:  # as float() of a whole number may be
        raise MisfitError("out of range")
    return float(value)


def _decimal(value: Any, precision: int, scale: int) -> Decimal:
    """Rounded half away from zero, as Spark's CAST does; a float stands for its shortest text. SQLite keeps decimals as texts."""
    if not _is_number(value) and not (isinstance(value, str) and _NUMBER.fullmatch(value)):
        raise _misfit(value)
    with localcontext(prec=1_000):
        try:
            rounded = Decimal(repr(value) if isinstance(value, float) else value).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
        except InvalidOperation as error:  # of more digits than `prec`
            raise MisfitError("out of range") from error
    if rounded.adjusted() >= precision - scale and rounded:
        raise MisfitError("out of range")
    return rounded


def _truth(value: Any) -> bool:
    """SQLite has 0 and 1."""
    if isinstance(value, bool) or (_is_number(value) and value in (0, 1)):
        return bool(value)
    raise _misfit(value)


def _text(value: Any) -> str:
    """A whole number in a column of texts, as codes among others in Excel, is its digits."""
    if isinstance(value, str):
        return value
    if _is_number(value) and value == int(value) and (isinstance(value, int) or abs(value) < _EXACT):
        return str(int(value))
    raise _misfit(value)


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    raise _misfit(value)


def _date(value: Any) -> date:
    if isinstance(value, str):
        try:
            return datetime.strptime(value, "%Y-%m-%d").date()
        except ValueError as error:
            raise MisfitError("text") from error
    if isinstance(value, datetime):
        if value.time() != time():
            raise MisfitError("a time")
        return value.date()
    if isinstance(value, date):
        return value
    raise _misfit(value)


def _moment(value: Any, has_zone: bool) -> datetime:
    """Without a zone of its own, a time is one of UTC, the time zone of the session."""
    if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\d", value, re.ASCII):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as error:
            raise MisfitError("text") from error
        if value.tzinfo is not None and not has_zone:
            raise MisfitError("a time with a zone")
    if isinstance(value, datetime):
        try:
            return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC if has_zone else None)
        except OverflowError as error:  # before the year 1 or after the year 9999 in UTC
            raise MisfitError("out of range") from error
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC if has_zone else None)
    raise _misfit(value)
