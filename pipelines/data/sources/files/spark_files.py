"""Tables of files that Spark lists and reads, where folders `column=value` make columns; and the one whose rows are whole files, with the
columns of Spark's binaryFile, such as `path` and `content`."""

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Self

from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from pipelines.config.messages.words import show_count
from pipelines.config.source.source import Table
from pipelines.config.source.table_settings import spark_options
from pipelines.data.sources.base import NoIncrementError, Rows
from pipelines.data.sources.files.file_table import PACKED_CHECKSUM, FileTable, checksums_of_pack, pack_rows
from pipelines.data.sources.files.folder_columns import folder_values
from pipelines.data.sources.files.listing import File
from pipelines.data.sources.text.parsed import Options
from pipelines.data.versions.raw_inputs import SourceFile
from pipelines.errors import SourceError
from pipelines.runtime.compat.spark import count_input_files, input_files, jvm

_LEAVING_OUT = {"pathglobfilter", "modifiedbefore", "modifiedafter"}
_COLUMNS = "path string, modificationTime timestamp, length bigint, content binary"


class SparkFiles(FileTable[Table]):
    load_paths: tuple[str, ...] = ()
    """Of a part of the table, the paths of its files, as Spark takes them."""
    base_path: str = ""
    """The folder below which folders of such files make columns."""

    def only(self, chosen: Sequence[File]) -> Self:
        part = super().only(chosen)
        part.load_paths, part.base_path = tuple(literal_path(file.path) for file in chosen), _base_path(chosen)
        return part

    @property
    def options(self) -> Options:
        return spark_options(self.settings.options)

    def reader(self, spark: SparkSession) -> DataFrameReader:
        """Raises SourceError if a name of a file is none for Spark's Java, which would pass the file over."""
        check_names(str(self.settings.place), [file.path for file in self.files], str(jvm().System.getProperty("sun.jnu.encoding")))
        base = {"basePath": self.base_path} if self.base_path else {}
        return spark.read.format(self.settings.format).options(**self.options, **base)

    def count_files(self, rows: DataFrame) -> int:
        """The number of files that Spark reads. Raises SourceError if it skips files that no option excludes."""
        count, spark_count = len(self.files), count_input_files(rows)
        if spark_count != count and not _LEAVING_OUT & self.options.keys():
            raise SourceError(
                f"{self.settings.path} holds {show_count(count, 'file')}, of which Spark reads {spark_count}; set options: "
                "{recursiveFileLookup: true}"
            )
        return spark_count


def literal_path(path: str) -> str:
    """The path of a file as Spark's readers take it: wildcards in it stand for themselves."""
    return re.sub(r"([][*?{}\\,])", r"\\\1", path)


def _base_path(chosen: Sequence[File]) -> str:
    """The folder above those that make columns; empty if none do. Raises NoIncrementError if there are several."""
    bases = {file.path.partition(f"/{file.folders.partition('/')[0]}/")[0] for file in chosen if file.folders}
    if len(bases) > 1:
        raise NoIncrementError(f"folders of {' and '.join(sorted(bases)[:2])} make columns, and Spark reads files below one of them alone")
    return next(iter(bases), "")


def check_names(place: str, paths: list[str], encoding: str) -> None:
    """Raises SourceError for a file whose name is not ASCII, if Java takes the names of files for text of another encoding than UTF-8."""
    if encoding.upper() not in ("UTF-8", "UTF8") and (path := next((path for path in paths if not path.isascii()), None)):
        raise SourceError(
            f"{place}: Java takes file names for {encoding} and cannot read {path}; start spark-submit with the environment variable "
            "LC_ALL=C.UTF-8"
        )


class BinaryFile(SparkFiles):
    packed_rows: DataFrame | None = None
    """A row for each file; files are packed once."""

    def empty(self, spark: SparkSession) -> DataFrame:
        if any("=" in file.path for file in self.files):
            return self._read(spark)
        return spark.createDataFrame([], _COLUMNS)

    def read_checksums(self, spark: SparkSession) -> Sequence[SourceFile]:
        return checksums_of_pack(self._pack(spark))

    def only(self, chosen: Sequence[File]) -> Self:
        part = super().only(chosen)
        part.packed_rows = None
        return part

    @property
    def _has_names(self) -> bool:
        return True  # a row contains the path of its file

    def rows(self, spark: SparkSession) -> Rows:
        return Rows(rows := self._pack(spark).drop(PACKED_CHECKSUM), rows.count())

    def identity_lines(self, files: Sequence[SourceFile], statements: Collection[str]) -> Iterator[str]:
        """Checksums and names, since a row contains its file's path, and the folders that make columns."""
        yield from self.content_lines(files, with_names=True)

    def _pack(self, spark: SparkSession) -> DataFrame:
        """The packed files, also those without a byte, which Spark passes over: whoever reads their content refuses them, one by one."""
        if self.packed_rows is None:
            rows = self._read(spark)
            self.count_files(rows)
            empty = {file.path: file for file in self.files if not file.bytes}
            added = []
            for path, name in input_files(rows, empty).items():
                folders = {column.lower(): value for column, value in folder_values(empty[path])}
                modified = datetime.fromisoformat(empty[path].modified)
                added.append((name, modified, 0, b"", *(folders[column.lower()] for column in rows.columns[4:])))
            if added:
                rows = rows.unionByName(rows.sparkSession.createDataFrame(added, rows.schema))
            self.packed_rows = pack_rows(rows)
        return self.packed_rows

    def _read(self, spark: SparkSession) -> DataFrame:
        return self.reader(spark).load(list(self.load_paths or self.settings.paths))
