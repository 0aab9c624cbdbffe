"""Tables of text: files are cut into records, and each record is checked and then parsed alone.

All columns are parsed and cached: a query that reads two of five columns must not turn a record with three into a row.
(With column pruning Spark returns five rows of a CSV file with four malformed records.)
"""

import codecs
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property, partial
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from pipelines.config.options import spark_options
from pipelines.config.source import Table
from pipelines.data.sources import files, pack
from pipelines.data.sources.base import Rows
from pipelines.data.sources.content import blocks_of, lines
from pipelines.data.sources.distribute import distribute, in_few_batches
from pipelines.data.sources.file_table import FileTable
from pipelines.data.sources.files import File, Range, has_folders
from pipelines.data.sources.folder_columns import check_values, declared, folder_columns, quoted, with_folder_columns
from pipelines.data.sources.parsed import FILE, KEY_COLUMNS, KEY_TYPES, LINE, PROBLEM, RANGE, RECORD, Options, apart, schema_of
from pipelines.data.sources.records import Dialect, cut
from pipelines.data.sources.signatures import PARQUET, binary_format
from pipelines.data.versions.sources import SourceFile
from pipelines.errors import ConfigError, SourceError

_RECORDS = f"{RECORD} string, {PROBLEM} string, {LINE} long, {RANGE} int"
Examiner = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Finds faults in a batch of records, and adds columns."""


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

    @cached_property
    def folder_schema(self) -> StructType:
        """The columns that the files' folders make."""
        return declared(folder_columns(self.settings.place, self._files()), self.schema)

    @cached_property
    def record_schema(self) -> StructType:
        """The columns of the records: those of the schema that no folder makes. Raises ConfigError if there are none."""
        of_folders = {name.lower() for name in self.folder_schema.names}
        fields = [field for field in self.schema if field.name.lower() not in of_folders]
        if not fields:
            raise ConfigError(f"source.tables.{self.name}.schema: folders make all of its columns; name those of the records too")
        return StructType(fields)

    @abstractmethod
    def dialect(self) -> Dialect:
        """The rules for cutting files into records."""

    @abstractmethod
    def parse(self, records: DataFrame) -> DataFrame:
        """The table's columns and those of ORIGIN, from RECORD, PROBLEM, LINE, RANGE and the columns of folders."""

    @property
    def examiner(self) -> Examiner | None:
        """Finds faults in records before they are parsed, and adds KEY_COLUMNS."""
        return None

    @property
    def looks(self) -> dict[str, str]:
        """Columns of LOOKS, and for each the expression of RE2 that is looked for in every record before it is parsed."""
        return {}

    @cached_property
    def packed(self) -> bool:
        """Whether the files are many and small, so that they are read once for checksums and records."""
        return self.settings.checksum == "sha256" and pack.small(self.found)

    def empty(self, spark: SparkSession) -> DataFrame:
        added = [StructField(self.settings.file_column, StringType())] if self._names_file else []
        return spark.createDataFrame([], StructType([*self.record_schema, *self.folder_schema, *added]))

    def identity(self, spark: SparkSession) -> tuple[SourceFile, ...]:
        return pack.packed_files(self._pack(spark)) if self.packed else super().identity(spark)

    def rows(self, spark: SparkSession) -> Rows:
        check_values(spark, self.settings.place, self.found, self.folder_schema)
        records, ranges = self.records(spark)
        parsed = self.parse(with_folder_columns(spark, records, ranges, self.folder_schema))
        return Rows(parsed.withColumnRenamed(FILE, self.settings.file_column) if self._names_file else parsed, None, ranges)

    def apart(self, parsed: DataFrame, columns: Mapping[str, Column], sound: Column, reason: Column) -> DataFrame:
        """The `columns` of records and those of folders, and the fault of a record that is not `sound`."""
        of_folders = {name: parsed[quoted(name)] for name in self.folder_schema.names}
        of_keys = [parsed[name] for name in KEY_COLUMNS[1:]] if self.examiner else []
        return apart(parsed, {**columns, **of_folders}, self.record_schema, sound, reason, of_keys)

    def records(self, spark: SparkSession) -> tuple[DataFrame, tuple[Range, ...]]:
        """Records with PROBLEM, LINE and RANGE, in tasks with equal shares of the bytes, and the ranges that RANGE numbers."""
        dialect, examiner = self.dialect(), partial(examine, self.examiner, self.looks)
        if self.packed:
            ranges = tuple(Range(file, 0, file.bytes) for file in self.found)
            run = partial(_cut_packed, dialect, examiner, self._file_names(ranges))
            return self._pack(spark).mapInArrow(run, self._schema_of_records), ranges
        self.check_text()
        work = files.ranges(self.found, files.task_bytes(self.found, spark.sparkContext.defaultParallelism), split=dialect.splits)
        ranges = tuple(piece for pieces in work for piece in pieces)
        numbers = iter(range(len(ranges)))
        numbered = [[(next(numbers), piece) for piece in pieces] for pieces in work]
        run = partial(_cut, dialect, examiner, self._file_names(ranges))
        return distribute(spark, numbered, run, self._schema_of_records), ranges

    @property
    def _names_file(self) -> bool:
        return bool(self.settings.file_column)

    @property
    def _schema_of_records(self) -> str:
        looks = [f"{name} boolean" for name in self.looks]
        return ", ".join([_RECORDS, *([KEY_TYPES] if self.examiner else []), *looks, *([f"{FILE} string"] if self._names_file else [])])

    def _file_names(self, ranges: tuple[Range, ...]) -> tuple[str, ...]:
        """The relative name of each range's file; none if the config wants no column of them."""
        return tuple(self.relative_name(piece.file.path) for piece in ranges) if self._names_file else ()

    def named_by(self, found: tuple[SourceFile, ...], statements: Collection[str]) -> Iterator[str]:
        """Checksums, with relative names if rows contain them, and with the folders that make columns."""
        yield from self.content_names(found, self._names_file)

    def _files(self) -> list[File]:
        """The files; none for a path of a single file, which lies in no folder of the table."""
        return self.found if any(has_folders(path) for path in self.settings.paths) else []

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


def examine(examiner: Examiner | None, looks: Mapping[str, str], batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch of record, problem and line, with what the examiner adds, and a column for each of the `looks`."""
    batch = examiner(batch) if examiner else batch
    for name, expression in looks.items():
        batch = batch.append_column(name, pc.match_substring_regex(batch["record"], expression))
    return batch


def _cut(dialect: Dialect, examiner: Examiner, names: tuple[str, ...], pieces: list[tuple[int, Range]]) -> Iterator[pa.RecordBatch]:
    for number, piece in pieces:
        batches = cut(lines(piece.file.path, piece.start, piece.stop), dialect, piece.file.path, start=piece.start == 0)
        yield from _numbered(batches, examiner, number, names)


def _cut_packed(dialect: Dialect, examiner: Examiner, names: tuple[str, ...], packed: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return in_few_batches(
        batch
        for rows in packed
        for number, path, content in zip(*(rows.column(name).to_pylist() for name in (pack.NUMBER, "path", "content")), strict=True)
        for batch in _numbered(cut(blocks_of(path, content), dialect, path), examiner, number, names)
    )


def _numbered(batches: Iterator[pa.RecordBatch], examiner: Examiner, number: int, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """The batches with RANGE, with the columns that the examiner adds, and with FILE if there are names of files."""
    for batch in batches:
        added = examiner(batch)
        columns = [RECORD, PROBLEM, LINE, RANGE, *added.schema.names[3:], *([FILE] if names else [])]
        files_of = [pa.repeat(names[number], len(batch))] if names else []
        ranges = pa.repeat(pa.scalar(number, pa.int32()), len(batch))
        yield pa.record_batch([*added.columns[:3], ranges, *added.columns[3:], *files_of], names=columns)
