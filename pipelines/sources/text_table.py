"""Tables of text: files are cut into records, and each record is checked and then parsed alone.

All columns are parsed and cached: a query that reads two of five columns must not turn a record with three into a row.
(With column pruning Spark returns five rows of a CSV file with four malformed records.)
"""

import codecs
from abc import abstractmethod
from collections.abc import Collection, Iterator
from functools import cached_property, partial
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from pipelines.config.options import spark_options
from pipelines.config.source import Table
from pipelines.dataset.sources import SourceFile
from pipelines.errors import SourceError
from pipelines.sources import files, pack
from pipelines.sources.base import Rows
from pipelines.sources.content import blocks_of, lines
from pipelines.sources.distribute import distribute, in_few_batches
from pipelines.sources.file_table import FileTable
from pipelines.sources.files import Range
from pipelines.sources.parsed import FILE, LINE, PROBLEM, RANGE, RECORD, Options, schema_of
from pipelines.sources.records import Dialect, cut
from pipelines.sources.signatures import PARQUET, binary_format

_RECORDS = f"{RECORD} string, {PROBLEM} string, {LINE} long, {RANGE} int"


class TextTable(FileTable[Table]):
    default_ddl: ClassVar[str] = ""
    """The columns of a table without a schema in its config."""

    def __init__(self, name: str, settings: Table) -> None:
        super().__init__(name, settings)
        self._packed_rows: DataFrame | None = None

    @property
    def options(self) -> Options:
        return spark_options(self.settings.options)

    @cached_property
    def schema(self) -> StructType:
        return schema_of(self.name, self.settings.ddl or self.default_ddl)

    @abstractmethod
    def dialect(self) -> Dialect:
        """The rules for cutting files into records."""

    @abstractmethod
    def parse(self, records: DataFrame) -> DataFrame:
        """The table's columns and those of ORIGIN, from RECORD, PROBLEM, LINE and RANGE."""

    @cached_property
    def packed(self) -> bool:
        """Whether the files are many and small, so that they are read once for checksums and records."""
        return self.settings.checksum == "sha256" and pack.small(self.found)

    def empty(self, spark: SparkSession) -> DataFrame:
        added = [StructField(self.settings.file_column, StringType())] if self._names_file else []
        return spark.createDataFrame([], StructType([*self.schema.fields, *added]))

    def identity(self, spark: SparkSession) -> tuple[SourceFile, ...]:
        return pack.packed_files(self._pack(spark)) if self.packed else super().identity(spark)

    def rows(self, spark: SparkSession) -> Rows:
        records, ranges = self.records(spark)
        parsed = self.parse(records)
        return Rows(parsed.withColumnRenamed(FILE, self.settings.file_column) if self._names_file else parsed, None, ranges)

    def records(self, spark: SparkSession) -> tuple[DataFrame, tuple[Range, ...]]:
        """Records with PROBLEM, LINE and RANGE, in tasks with equal shares of the bytes, and the ranges that RANGE numbers."""
        dialect = self.dialect()
        if self.packed:
            ranges = tuple(Range(file, 0, file.bytes) for file in self.found)
            return self._pack(spark).mapInArrow(partial(_cut_packed, dialect, self._file_names(ranges)), self._schema_of_records), ranges
        self.check_text()
        work = files.ranges(self.found, files.task_bytes(self.found, spark.sparkContext.defaultParallelism), split=dialect.splits)
        ranges = tuple(piece for pieces in work for piece in pieces)
        numbers = iter(range(len(ranges)))
        numbered = [[(next(numbers), piece) for piece in pieces] for pieces in work]
        return distribute(spark, numbered, partial(_cut, dialect, self._file_names(ranges)), self._schema_of_records), ranges

    @property
    def _names_file(self) -> bool:
        return bool(self.settings.file_column)

    @property
    def _schema_of_records(self) -> str:
        return f"{_RECORDS}, {FILE} string" if self._names_file else _RECORDS

    def _file_names(self, ranges: tuple[Range, ...]) -> tuple[str, ...]:
        """The relative name of each range's file; none if the config wants no column of them."""
        return tuple(self.relative_name(piece.file.path) for piece in ranges) if self._names_file else ()

    def named_by(self, found: tuple[SourceFile, ...], statements: Collection[str]) -> Iterator[str]:
        """Checksums, with relative names if rows contain them."""
        if not self._names_file:
            yield from super().named_by(found, statements)
            return
        yield from sorted(f"{file.checksum} {self.relative_name(file.path)}" for file in found)

    def check_text(self) -> None:
        """Raises SourceError if the first file is of a binary format, of which every line would be a malformed record."""
        first = self.found[0].path
        kind = binary_format(first)
        if kind == PARQUET:
            raise SourceError(f"{first} is a file of {kind}, not of {self.settings.format}; set source.tables.{self.name}.format: parquet")
        if kind:
            raise SourceError(f"{first} is a file of {kind}, not of {self.settings.format}; write it as csv, json or parquet")

    def _pack(self, spark: SparkSession) -> DataFrame:
        if self._packed_rows is None:
            self.check_text()  # here, since a packed file is not read again
            self._packed_rows = pack.text_files(spark, self.found)
        return self._packed_rows


def is_on(options: Options, name: str) -> bool:
    return options.get(name, "false").lower() == "true"


def encoding_of(options: Options) -> str:
    return codecs.lookup(options.get("encoding", options.get("charset", "utf-8"))).name


def _cut(dialect: Dialect, names: tuple[str, ...], pieces: list[tuple[int, Range]]) -> Iterator[pa.RecordBatch]:
    for number, piece in pieces:
        batches = cut(lines(piece.file.path, piece.start, piece.stop), dialect, piece.file.path, start=piece.start == 0)
        yield from _numbered(batches, number, names)


def _cut_packed(dialect: Dialect, names: tuple[str, ...], packed: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return in_few_batches(
        batch
        for rows in packed
        for number, path, content in zip(*(rows.column(name).to_pylist() for name in (pack.NUMBER, "path", "content")), strict=True)
        for batch in _numbered(cut(blocks_of(path, content), dialect, path), number, names)
    )


def _numbered(batches: Iterator[pa.RecordBatch], number: int, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """The batches with RANGE, and with FILE if there are names of files."""
    for batch in batches:
        numbers = pa.array([number] * len(batch), pa.int32())
        files_of = [pa.repeat(names[number], len(batch))] if names else []
        yield pa.record_batch([*batch.columns, numbers, *files_of], names=[RECORD, PROBLEM, LINE, RANGE, *([FILE] if names else [])])
