"""Delta Lake: a version of a table, whose rows are read in Spark's tasks."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from pipelines.data.sources.base import RawTable, Rows, distribute
from pipelines.data.sources.files.files import task_bytes
from pipelines.data.sources.files.listing import File
from pipelines.data.versions.raw_inputs import SourceFile
from pipelines.formats.delta.increments import find_added_files
from pipelines.formats.delta.parquet_rows import RowReader, file_parts
from pipelines.formats.delta.settings import DeltaLakeTable
from pipelines.formats.delta.snapshot import Snapshot, check_deltalake, open_snapshot


class DeltaLake(RawTable[DeltaLakeTable]):
    @cached_property
    def snapshot(self) -> Snapshot:
        """The version to read, which is found once: the latest one may be another later."""
        check_deltalake(f"source.tables.{self.name}")
        return open_snapshot(self.settings.path, self.settings.version, self.settings.timestamp)

    def empty(self, spark: SparkSession) -> DataFrame:
        return spark.createDataFrame([], table_schema(self.snapshot))

    def identity(self, spark: SparkSession) -> tuple[SourceFile, ...]:
        snapshot = self.snapshot
        return (SourceFile(self.settings.path, sum(file.bytes for file in snapshot.files), snapshot.checksum),)

    def rows(self, spark: SparkSession) -> Rows:
        snapshot, schema = self.snapshot, table_schema(self.snapshot)
        files = [File(file.path, file.bytes, "") for file in snapshot.files]
        parts = file_parts(snapshot.files, task_bytes(files, spark.sparkContext.defaultParallelism))
        reader = row_reader(snapshot, str(spark.conf.get("spark.sql.session.timeZone")))
        return Rows(distribute(spark, parts, reader, schema), snapshot.rows)

    def since(self, spark: SparkSession, earlier: Sequence[SourceFile]) -> "DeltaLake | None":
        files = find_added_files(self.snapshot, [file.checksum for file in earlier])
        if not files:
            return None
        table = DeltaLake(self.name, self.settings)
        table.snapshot = replace(self.snapshot, files=files)
        return table


def row_reader(snapshot: Snapshot, time_zone: str) -> RowReader:
    """Reads the files of a version, as Spark in this time zone takes rows."""
    schema = to_arrow_schema(table_schema(snapshot), timezone=time_zone)
    return RowReader(snapshot.description, snapshot.columns, snapshot.mapping, schema)


def table_schema(snapshot: Snapshot) -> T.StructType:
    """The columns of the table in Spark, without what only its files need to know. Any may have NULLs, as files do not promise."""
    return cast(T.StructType, _without_metadata(snapshot.columns))


def _without_metadata(kind: T.DataType) -> T.DataType:
    match kind:
        case T.StructType():
            return T.StructType([T.StructField(field.name, _without_metadata(field.dataType)) for field in kind])
        case T.ArrayType():
            return T.ArrayType(_without_metadata(kind.elementType))
        case T.MapType():
            return T.MapType(_without_metadata(kind.keyType), _without_metadata(kind.valueType))
    return kind
