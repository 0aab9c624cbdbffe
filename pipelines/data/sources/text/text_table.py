"""Tables of text: files are cut into records, and each record is checked and then parsed alone. The simplest has lines, or with `wholetext`
whole files: one column.

All columns are parsed and cached: a query that reads two of five columns must not turn a record with three into a row.
(With column pruning Spark returns five rows of a CSV file with four malformed records.)
"""

import codecs
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import ClassVar, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from pipelines.config.source.source import Table
from pipelines.config.source.table_settings import spark_options
from pipelines.data.sources.base import Rows, distribute, merge_batches
from pipelines.data.sources.files import files
from pipelines.data.sources.files.content import PARQUET, binary_format, decompress, lines
from pipelines.data.sources.files.file_table import PACKED_NUMBER, FileTable, checksums_of_pack, is_pack_worthwhile, pack_files
from pipelines.data.sources.files.files import has_folders
from pipelines.data.sources.files.folder_columns import check_values, folder_columns, join_folder_columns, resolve_types
from pipelines.data.sources.files.listing import File, Range, WholeFiles
from pipelines.data.sources.spark_sql import quote_name
from pipelines.data.sources.text.parsed import (
    FILE,
    KEY_COLUMNS,
    KEY_TYPES,
    LINE,
    PROBLEM,
    RANGE,
    RECORD,
    Options,
    parse_schema,
    sound_record,
)
from pipelines.data.sources.text.records import Dialect, cut
from pipelines.data.versions.raw_inputs import SourceFile
from pipelines.errors import ConfigError, SourceError

_RECORDS = f"{RECORD} string, {PROBLEM} string, {LINE} long, {RANGE} int"
_UNSOUND = ""
"""Stands for the reason of a record that is not sound."""
Examiner = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Finds faults in a batch of records, and adds columns."""


class TextTable(FileTable[Table]):
    default_ddl: ClassVar[str] = ""
    """The columns of a table without a schema in its config."""
    packed_rows: DataFrame | None = None

    @property
    def options(self) -> Options:
        return spark_options(self.settings.options)

    @cached_property
    def schema(self) -> StructType:
        return parse_schema(self.name, self.settings.ddl or self.default_ddl)

    @cached_property
    def folder_schema(self) -> StructType:
        """The columns that the files' folders make."""
        # The path of a single file lies in no folder of the table.
        files_in_folders = self.files if any(has_folders(path) for path in self.settings.paths) else []
        return resolve_types(folder_columns(self.settings.place, files_in_folders), self.schema)

    @cached_property
    def record_schema(self) -> StructType:
        """The columns of the records: those of the schema that no folder makes. Raises ConfigError if there are none."""
        folder_names = {name.lower() for name in self.folder_schema.names}
        fields = [field for field in self.schema if field.name.lower() not in folder_names]
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
    def is_packed(self) -> bool:
        """Whether the files are many and small, so that they are read once for checksums and records."""
        return self.settings.checksum == "sha256" and is_pack_worthwhile(self.files)

    def empty(self, spark: SparkSession) -> DataFrame:
        added = [StructField(self.settings.file_column, StringType())] if self.settings.file_column else []
        return spark.createDataFrame([], StructType([*self.record_schema, *self.folder_schema, *added]))

    def read_checksums(self, spark: SparkSession) -> Sequence[SourceFile]:
        return checksums_of_pack(self._pack(spark)) if self.is_packed else super().read_checksums(spark)

    def only(self, chosen: Sequence[File]) -> Self:
        part = super().only(chosen)
        part.packed_rows, part.is_packed = None, is_pack_worthwhile(chosen)
        return part

    def rows(self, spark: SparkSession) -> Rows:
        check_values(spark, self.settings.place, self.files, self.folder_schema)
        records, ranges = self.records(spark)
        parsed = self.parse(join_folder_columns(spark, records, ranges, self.folder_schema))
        return Rows(parsed.withColumnRenamed(FILE, self.settings.file_column) if self.settings.file_column else parsed, None, ranges)

    def mark_faults(self, parsed: DataFrame, columns: Mapping[str, Column], is_sound: Column, reason: Column) -> DataFrame:
        """The `columns` of records and those of folders, the fault and origin of each record that is not sound, and KEY_COLUMNS. Where a
        record is not sound, `reason` is not NULL."""
        required = [field.name for field in self.record_schema if not field.nullable]
        missing = [F.when(columns[name].isNull(), F.lit(f"NULL in {name}, which is NOT NULL")) for name in required]
        # Not in columns of their own, which costs a quarter of all reading: Spark computes each once for the columns of one projection. Of
        # the reason, a large expression, the plan has two: each takes long to plan, and Spark's code for one alone makes reading a third
        # slower.
        fault = F.coalesce(F.col(PROBLEM), F.when(~is_sound, F.lit(_UNSOUND)), *missing)
        problem = F.when(fault == _UNSOUND, reason).otherwise(fault)
        is_faulty = {RECORD: problem.isNotNull(), RANGE: fault.isNotNull(), LINE: fault.isNotNull()}
        origin = [F.when(condition, F.col(name)).alias(name) for name, condition in is_faulty.items()]  # of valid rows, it takes no space
        values = {**columns, **{name: parsed[quote_name(name)] for name in self.folder_schema.names}}
        file = [F.col(FILE)] if FILE in parsed.columns else []
        key_columns = [parsed[name] for name in KEY_COLUMNS[1:]] if self.examiner else []
        return parsed.select(*[value.alias(name) for name, value in values.items()], *file, problem.alias(PROBLEM), *origin, *key_columns)

    def records(self, spark: SparkSession) -> tuple[DataFrame, Sequence[Range]]:
        """Records with PROBLEM, LINE and RANGE, in tasks with equal shares of the bytes, and the ranges that RANGE numbers."""
        dialect, examiner = self.dialect(), partial(examine, self.examiner, self.looks)
        with_names = bool(self.settings.file_column)
        looks = [f"{name} boolean" for name in self.looks]
        columns = ", ".join([_RECORDS, *([KEY_TYPES] if self.examiner else []), *looks, *([f"{FILE} string"] if with_names else [])])
        if self.is_packed:
            ranges: Sequence[Range] = WholeFiles(self.files)
        else:
            self.check_text()
            tasks = files.ranges(self.files, files.task_bytes(self.files, spark.sparkContext.defaultParallelism), split=dialect.splits)
            ranges = tuple(chain.from_iterable(tasks))
        names = tuple(self.relative_name(part.file.path) for part in ranges) if with_names else ()
        if self.is_packed:
            return self._pack(spark).mapInArrow(partial(_cut_packed, dialect, examiner, names), columns), ranges
        numbers = iter(range(len(ranges)))
        work = [[(next(numbers), part) for part in task] for task in tasks]
        return distribute(spark, work, partial(_cut, dialect, examiner, names), columns), ranges

    def identity_lines(self, files: Sequence[SourceFile], statements: Collection[str]) -> Iterator[str]:
        """Checksums, with relative names if rows contain them, and with the folders that make columns."""
        yield from self.content_lines(files, with_names=bool(self.settings.file_column))

    def check_text(self) -> None:
        """Raises SourceError if the first file is of a binary format, of which every line would be a malformed record."""
        first = self.files[0].path
        kind = binary_format(first)
        if kind == PARQUET:
            raise SourceError(f"{first} is a file of {kind}, not of {self.settings.format}; set source.tables.{self.name}.format: parquet")
        if kind:
            raise SourceError(f"{first} is a file of {kind}, not of {self.settings.format}; write it as csv, json or parquet")

    def _pack(self, spark: SparkSession) -> DataFrame:
        if self.packed_rows is None:
            self.check_text()  # here, since a packed file is not read again
            self.packed_rows = pack_files(spark, self.files)
        return self.packed_rows


def is_on(options: Options, name: str) -> bool:
    return options.get(name, "false").lower() == "true"


def encoding_name(options: Options) -> str:
    return codecs.lookup(options.get("encoding", options.get("charset", "utf-8"))).name


def examine(examiner: Examiner | None, looks: Mapping[str, str], batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch of record, problem and line, with what the examiner adds, and a column for each of the `looks`."""
    batch = examiner(batch) if examiner else batch
    for name, expression in looks.items():
        batch = batch.append_column(name, pc.match_substring_regex(batch["record"], expression))
    return batch


def _cut(dialect: Dialect, examiner: Examiner, names: tuple[str, ...], ranges: list[tuple[int, Range]]) -> Iterator[pa.RecordBatch]:
    for number, part in ranges:
        is_first, is_last = part.start == 0, part.stop >= part.file.bytes
        batches = cut(lines(part.file.path, part.start, part.stop), dialect, part.file.path, is_first, is_last)
        yield from _add_ranges(batches, examiner, number, names)


def _cut_packed(dialect: Dialect, examiner: Examiner, names: tuple[str, ...], packed: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return merge_batches(
        batch
        for rows in packed
        for number, path, content in zip(*(rows.column(name).to_pylist() for name in (PACKED_NUMBER, "path", "content")), strict=True)
        for batch in _add_ranges(cut(decompress(path, content), dialect, path), examiner, number, names)
    )


def _add_ranges(batches: Iterator[pa.RecordBatch], examiner: Examiner, number: int, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Add RANGE, the columns of the examiner, and FILE if there are names of files."""
    for batch in batches:
        examined = examiner(batch)
        columns = [RECORD, PROBLEM, LINE, RANGE, *examined.schema.names[3:], *([FILE] if names else [])]
        file_names = [pa.repeat(names[number], len(batch))] if names else []
        ranges = pa.repeat(pa.scalar(number, pa.int32()), len(batch))
        yield pa.record_batch([*examined.columns[:3], ranges, *examined.columns[3:], *file_names], names=columns)


class Text(TextTable):
    default_ddl = "value string"

    def dialect(self) -> Dialect:
        return Dialect(encoding=encoding_name(self.options), whole_file=is_on(self.options, "wholetext"), keep_blank=True)

    def parse(self, records: DataFrame) -> DataFrame:
        """Raises ConfigError unless the records have one column, of text."""
        if [field.dataType for field in self.record_schema] != [StringType()]:
            raise ConfigError(
                f"source.tables.{self.name}.schema: text has one column, a string, besides those of folders (got {self.settings.ddl}); "
                "declare it as `value string`, and make numbers of it in the query"
            )
        return self.mark_faults(records, {self.record_schema.names[0]: sound_record(records)}, F.lit(True), F.lit(None))
