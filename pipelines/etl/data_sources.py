"""Sources that Spark itself does not read, as Python Data Sources that a session registers by name.

    spark.read.format("idx").schema("image binary, label int").option("paths", '["images.gz", "labels.gz"]').load()
    spark.read.format("tar").option("paths", '["recordings.tar.gz"]').load()
    spark.read.format("package").load("package://sklearn/datasets/data/digits.csv.gz")

They run in Spark's Python workers, so this package must be installed where executors run.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pipelines.errors import SourceError
from pipelines.etl.archive import read_members
from pipelines.etl.content import blocks
from pipelines.etl.idx import read_columns
from pipelines.etl.records import Dialect, cut

ROW = "row"
"""Name of an idx column that counts rows."""


class IdxSource(DataSource):
    """MNIST's files side by side: a column for each path, in the schema's order, and one that counts rows if it is named `row`."""

    @classmethod
    def name(cls) -> str:
        return "idx"

    def schema(self) -> str:
        return "image binary, label int" if len(_paths(self.options)) == 2 else "value binary"

    def reader(self, schema: StructType) -> DataSourceReader:
        paths = _paths(self.options)
        columns = [name for name in schema.names if name != ROW]
        if len(paths) != len(columns):
            raise SourceError(f"an idx table has a column for each file: {len(paths)} files, and the columns {', '.join(columns)}")
        return IdxReader(paths, schema)


@dataclass
class IdxReader(DataSourceReader):
    paths: list[str]
    columns: StructType

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_columns(self.paths, to_arrow_schema(self.columns), ROW)


class TarSource(DataSource):
    """The files inside tar archives, a task for each archive: `path` within it, and `content`."""

    @classmethod
    def name(cls) -> str:
        return "tar"

    def schema(self) -> str:
        return "path string, content binary"

    def reader(self, schema: StructType) -> DataSourceReader:
        return TarReader(_paths(self.options), schema)


@dataclass
class TarReader(DataSourceReader):
    paths: list[str]
    columns: StructType

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(path) for path in self.paths]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_members(partition.value, to_arrow_schema(self.columns))


class PackageSource(DataSource):
    """The records of a text file inside an installed Python package, with what is wrong with each; see `records.cut`."""

    @classmethod
    def name(cls) -> str:
        return "package"

    def schema(self) -> str:
        return "record string, problem string, line bigint"

    def reader(self, schema: StructType) -> DataSourceReader:
        return PackageReader(self.options["path"], Dialect(**json.loads(self.options.get("dialect", "{}"))))


@dataclass
class PackageReader(DataSourceReader):
    path: str
    dialect: Dialect

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return cut(blocks(self.path), self.dialect, self.path)


def _paths(options: Mapping[str, str]) -> list[str]:
    return json.loads(options["paths"]) if "paths" in options else [options["path"]]


DATA_SOURCES: tuple[type[DataSource], ...] = (IdxSource, PackageSource, TarSource)
