"""Whole files, one row each, with the columns of Spark's binaryFile, such as `path` and `content`."""

from collections.abc import Collection, Iterator

from pyspark.sql import DataFrame, SparkSession

from pipelines.config.source.source import Table
from pipelines.data.sources.base import Rows
from pipelines.data.sources.files import pack
from pipelines.data.sources.files.spark_files import SparkFiles
from pipelines.data.versions.sources import SourceFile
from pipelines.errors import SourceError
from pipelines.runtime.compat.spark import first_input_file

_COLUMNS = "path string, modificationTime timestamp, length bigint, content binary"


class BinaryFile(SparkFiles):
    def __init__(self, name: str, settings: Table) -> None:
        super().__init__(name, settings)
        self._packed_rows: DataFrame | None = None
        """A row for each file; files are packed once."""
        self._file_count = 0

    def empty(self, spark: SparkSession) -> DataFrame:
        if any("=" in file.path for file in self.files):
            return self._read(spark)
        return spark.createDataFrame([], _COLUMNS)

    def identity(self, spark: SparkSession) -> tuple[SourceFile, ...]:
        return self.state() if self.settings.checksum == "stat" else pack.file_checksums(self._pack(spark))

    def rows(self, spark: SparkSession) -> Rows:
        """Raises SourceError if files are empty, since Spark skips them."""
        rows = self._pack(spark).drop(pack.CHECKSUM)
        count = rows.count()
        if missing := self._file_count - count:
            first = first_input_file(self._read(spark), (file.path for file in self.files if not file.bytes))
            raise SourceError(f"{self.settings.place}: {missing} of {self._file_count} files are empty, first {first}; remove them")
        return Rows(rows, count)

    def identity_lines(self, files: tuple[SourceFile, ...], statements: Collection[str]) -> Iterator[str]:
        """Checksums and names, since a row contains its file's path, and the folders that make columns."""
        yield from self.content_lines(files, with_names=True)

    def _read(self, spark: SparkSession) -> DataFrame:
        return self.reader(spark).load(list(self.settings.paths))

    def _pack(self, spark: SparkSession) -> DataFrame:
        if self._packed_rows is None:
            rows = self._read(spark)
            self._file_count = self.count_files(rows)
            self._packed_rows = pack.pack_rows(rows)
        return self._packed_rows
