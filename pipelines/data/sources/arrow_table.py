"""Tables of files that know the types of their columns: a task reads each file into batches of Arrow.

All files have the same columns, in types that are the same to Spark. A schema in the config chooses columns, and may widen their types.
"""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property, partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema

from pipelines.config.messages.words import name_list, suggestion
from pipelines.config.source.source import Table
from pipelines.data.sources.arrow_files import ArrowReader, convert_array, spark_kind
from pipelines.data.sources.base import Rows, distribute
from pipelines.data.sources.files.file_table import FileTable
from pipelines.data.sources.files.folder_columns import check_values, folder_columns, join_folder_columns, resolve_types
from pipelines.data.sources.files.listing import WholeFiles
from pipelines.data.sources.text.parsed import FILE, LINE, PROBLEM, RANGE, RECORD, RESERVED, parse_schema
from pipelines.data.versions.raw_inputs import SourceFile
from pipelines.errors import SourceError

ArrowSettings = TypeVar("ArrowSettings", bound=Table)
_RECORD_CHARACTERS = 10_000


class ArrowTable(FileTable[ArrowSettings]):
    """A subclass has the reader of its format."""

    @property
    @abstractmethod
    def reader(self) -> ArrowReader:
        """Reads one file."""

    @cached_property
    def declared(self) -> T.StructType | None:
        return parse_schema(self.name, self.settings.ddl) if self.settings.ddl else None

    @cached_property
    def folder_schema(self) -> T.StructType:
        """The columns that folders make."""
        return resolve_types(folder_columns(self.settings.place, self.files), self.declared or T.StructType())

    @cached_property
    def schema(self) -> T.StructType:
        """The columns of the first file, or those that are declared and no folder makes."""
        columns = file_schema(self.reader, self.files[0].path)
        if self.declared is None:
            return columns
        folders = {name.lower() for name in self.folder_schema.names}
        chosen = [field for field in self.declared if field.name.lower() not in folders]
        check_columns(self.files[0].path, columns, chosen)
        return T.StructType([T.StructField(field.name, field.dataType) for field in chosen])

    def empty(self, spark: SparkSession) -> DataFrame:
        added = [T.StructField(self.settings.file_column, T.StringType())] if self.settings.file_column else []
        return spark.createDataFrame([], T.StructType([*self.schema, *self.folder_schema, *added]))

    def rows(self, spark: SparkSession) -> Rows:
        check_values(spark, self.settings.place, self.files, self.folder_schema)
        ranges = WholeFiles(self.files)
        work = [(number, file.path, self.relative_name(file.path)) for number, file in enumerate(self.files)]
        origin = [(PROBLEM, T.StringType()), (RECORD, T.StringType()), (RANGE, T.IntegerType()), (LINE, T.LongType())]
        name = [(FILE, T.StringType())] if self.settings.file_column else []
        schema = T.StructType([*self.schema, *(T.StructField(*column) for column in [*origin, *name])])
        arrow = to_arrow_schema(schema, timezone=str(spark.conf.get("spark.sql.session.timeZone")))
        rows = distribute(spark, work, partial(_read, self.reader, self.schema.names, self.declared is None, arrow), schema)
        if name:
            rows = rows.withColumnRenamed(FILE, self.settings.file_column)
        return Rows(join_folder_columns(spark, rows, ranges, self.folder_schema), None, ranges)

    def identity_lines(self, files: Sequence[SourceFile], statements: Collection[str]) -> Iterator[str]:
        yield from self.content_lines(files, with_names=bool(self.settings.file_column))


def file_schema(reader: ArrowReader, path: str) -> T.StructType:
    """The columns of a file in Spark's types. Raises SourceError for a type that Spark does not have, and for names that it cannot tell
    apart."""
    columns = reader.schema(path)
    lower = [name.lower() for name in columns.names]
    if equal := [name for name in columns.names if lower.count(name.lower()) > 1]:
        raise SourceError(f"{path} has columns {name_list(equal)}, which Spark takes for one; rename one in the file")
    if reserved := sorted(RESERVED & set(lower)):
        raise SourceError(f"{path} has the column {reserved[0]}, a name that is taken; rename it in the file")
    if not columns.names:
        raise SourceError(f"{path} has no columns; give a file that has some")
    fields = []
    for column in columns:
        kind = spark_kind(column.type)
        if kind is None:
            raise SourceError(
                f"{path}: column {column.name} is {column.type}, which Spark does not have; give the table a schema of the others, or "
                "write it in another type"
            )
        fields.append(T.StructField(column.name, from_arrow_type(kind, prefer_timestamp_ntz=True)))
    return T.StructType(fields)


def check_columns(path: str, columns: T.StructType, chosen: Sequence[T.StructField]) -> None:
    """Raises SourceError if a chosen column is not in a file."""
    names = {name.lower(): name for name in columns.names}
    if missing := [field.name for field in chosen if field.name.lower() not in names]:
        hint = suggestion(missing[0], columns.names, f"it has {name_list(columns.names)}")
        raise SourceError(f"{path} has no column {name_list(missing)}; {hint}")


def _read(
    reader: ArrowReader, names: Sequence[str], has_all: bool, schema: pa.Schema, work: tuple[int, str, str]
) -> Iterator[pa.RecordBatch]:
    """`has_all` if the columns are those of the first file, and not chosen ones."""
    number, path, file_name = work
    names_in_file = {name.lower(): name for name in reader.schema(path).names}
    chosen = {name.lower() for name in names}
    if chosen - names_in_file.keys() or (has_all and names_in_file.keys() - chosen):
        raise SourceError(
            f"{path} has the columns {name_list(list(names_in_file.values()))}, and the first file {name_list(list(names))}; give the "
            "table a schema of the columns that all have, or make the files tables of their own"
        )
    rows_before = 0
    for batch in reader.batches(path, [names_in_file[name.lower()] for name in names]):
        yield _to_batch(batch, names, schema, number, file_name, path, rows_before)
        rows_before += len(batch)


def _to_batch(
    batch: pa.RecordBatch, names: Sequence[str], schema: pa.Schema, number: int, file_name: str, path: str, rows_before: int
) -> pa.RecordBatch:
    arrays, problems = [], pa.nulls(len(batch), pa.string())
    for name, column, field in zip(names, batch.columns, schema, strict=False):
        converted = convert_array(column, f"{path}: column {name}")
        try:
            arrays.append(converted.values if converted.values.type == field.type else converted.values.cast(field.type))
        except pa.ArrowException as error:
            raise SourceError(
                f"{path}: column {name} is {converted.values.type}, and not {field.type}, as the schema or the first file has it; "
                f"declare a type in the schema that holds both ({' '.join(str(error).split())[:200]})"
            ) from error
        if converted.is_faulty is not None and pc.any(converted.is_faulty).as_py():
            fault = pa.scalar(f"{name} is infinite, or outside of the years 1 to 9999")
            problems = pc.coalesce(problems, pc.if_else(converted.is_faulty, fault, pa.scalar(None, pa.string())))
    places = range(rows_before + 1, rows_before + len(batch) + 1)
    records = [None if problem is None else _record(batch, place) for place, problem in enumerate(problems.to_pylist())]
    origin = [problems, pa.array(records, pa.string()), pa.repeat(pa.scalar(number, pa.int32()), len(batch)), pa.array(places, pa.int64())]
    file_names = [pa.repeat(file_name, len(batch))] * (len(schema) - len(arrays) - len(origin))
    return pa.record_batch([*arrays, *origin, *file_names], schema=schema)


def _record(batch: pa.RecordBatch, place: int) -> str:
    """A row as the quarantine shows it."""
    texts = [
        str(column.slice(place, 1).cast(pa.string())[0]) if pa.types.is_temporal(column.type) else str(column[place]) for column in batch
    ]
    return ", ".join(f"{name}={text}" for name, text in zip(batch.schema.names, texts, strict=True))[:_RECORD_CHARACTERS]
