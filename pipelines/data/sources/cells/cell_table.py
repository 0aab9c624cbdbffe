"""Tables whose files hold cells with types of their own: a task reads each file, and converts its cells to the columns of the schema."""

from abc import abstractmethod
from collections.abc import Collection, Iterator
from functools import cached_property, partial
from itertools import islice

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from pipelines.config.source.source import Table
from pipelines.data.sources.base import Rows
from pipelines.data.sources.cells.cell_files import FileReader
from pipelines.data.sources.cells.cells import TYPES, to_record_batch
from pipelines.data.sources.distribute import distribute
from pipelines.data.sources.files.file_table import FileTable, stats
from pipelines.data.sources.files.files import File, Range, find
from pipelines.data.sources.text.parsed import FILE, LINE, PROBLEM, RANGE, RECORD, parse_schema
from pipelines.data.versions.sources import SourceFile
from pipelines.errors import ConfigError

_ROWS_PER_BATCH = 2_000


class CellTable(FileTable[Table]):
    """Rows with a cell of another type than its column are malformed, as records of CSV are."""

    @cached_property
    def schema(self) -> StructType:
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

    def select(self, files: list[File]) -> list[File]:
        """The files at the table's path that hold rows, without those that a program keeps beside them."""
        return files

    @cached_property
    def files(self) -> list[File]:
        return self.select(find(self.settings.path))

    def state(self) -> tuple[SourceFile, ...]:
        return stats(self.select(find(self.settings.path)))

    def empty(self, spark: SparkSession) -> DataFrame:
        added = [StructField(self.settings.file_column, StringType())] if self.settings.file_column else []
        return spark.createDataFrame([], StructType([*self.schema, *added]))

    def rows(self, spark: SparkSession) -> Rows:
        ranges = tuple(Range(file, 0, file.bytes) for file in self.files)
        work = [(number, file.path, self.relative_name(file.path)) for number, file in enumerate(self.files)]
        origin = [(PROBLEM, StringType()), (RECORD, StringType()), (RANGE, IntegerType()), (LINE, LongType())]
        file = [(FILE, StringType())] if self.settings.file_column else []
        nullable = [StructField(column.name, column.dataType) for column in self.schema]
        schema = StructType([*nullable, *(StructField(name, kind) for name, kind in [*origin, *file])])
        arrow = to_arrow_schema(schema, timezone=str(spark.conf.get("spark.sql.session.timeZone")))
        rows = distribute(spark, work, partial(_read, self.reader, self.schema, arrow), schema)
        return Rows(rows.withColumnRenamed(FILE, self.settings.file_column) if file else rows, None, ranges)

    def identity_lines(self, files: tuple[SourceFile, ...], statements: Collection[str]) -> Iterator[str]:
        yield from self.content_lines(files, with_names=bool(self.settings.file_column))


def _read(reader: FileReader, columns: StructType, schema: pa.Schema, work: tuple[int, str, str]) -> Iterator[pa.RecordBatch]:
    number, path, name = work
    rows = reader(path, columns.names)
    while batch := list(islice(rows, _ROWS_PER_BATCH)):
        lines, values = zip(*batch, strict=True)
        yield to_record_batch(values, lines, columns, schema, number, name)
