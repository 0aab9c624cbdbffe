"""Whole files, one row each, with the columns of Spark's binaryFile, such as `path` and `content`."""

from collections.abc import Collection, Iterator
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession

from pipelines.config.source.source import Table
from pipelines.data.sources.base import Rows
from pipelines.data.sources.files import pack
from pipelines.data.sources.files.folder_columns import folder_values
from pipelines.data.sources.files.spark_files import SparkFiles
from pipelines.data.versions.sources import SourceFile
from pipelines.runtime.compat.spark import input_files

_COLUMNS = "path string, modificationTime timestamp, length bigint, content binary"


class BinaryFile(SparkFiles):
    def __init__(self, name: str, settings: Table) -> None:
        super().__init__(name, settings)
        self._packed_rows: DataFrame | None = None
        """A row for each file; files are packed once."""

    def empty(self, spark: SparkSession) -> DataFrame:
        if any("=" in file.path for file in self.files):
            return self._read(spark)
        return spark.createDataFrame([], _COLUMNS)

    def identity(self, spark: SparkSession) -> tuple[SourceFile, ...]:
        return self.state() if self.settings.checksum == "stat" else pack.file_checksums(self._pack(spark))

    def rows(self, spark: SparkSession) -> Rows:
        return Rows(rows := self._pack(spark).drop(pack.CHECKSUM), rows.count())

    def identity_lines(self, files: tuple[SourceFile, ...], statements: Collection[str]) -> Iterator[str]:
        """Checksums and names, since a row contains its file's path, and the folders that make columns."""
        yield from self.content_lines(files, with_names=True)

    def _read(self, spark: SparkSession) -> DataFrame:
        return self.reader(spark).load(list(self.settings.paths))

    def _pack(self, spark: SparkSession) -> DataFrame:
        if self._packed_rows is None:
            rows = self._read(spark)
            self.count_files(rows)
            self._packed_rows = pack.pack_rows(self._add_empty_files(rows))
        return self._packed_rows

    def _add_empty_files(self, rows: DataFrame) -> DataFrame:
        """The rows with those of files without a byte, which Spark passes over: whoever reads their content refuses them, one by one."""
        empty = {file.path: file for file in self.files if not file.bytes}
        names = input_files(rows, empty)
        if not names:
            return rows
        folders = {path: {name.lower(): value for name, value in folder_values(empty[path])} for path in names}
        values = [
            (name, datetime.fromisoformat(empty[path].modified), 0, b"", *(folders[path][field.lower()] for field in rows.columns[4:]))
            for path, name in names.items()
        ]
        return rows.unionByName(rows.sparkSession.createDataFrame(values, rows.schema))
