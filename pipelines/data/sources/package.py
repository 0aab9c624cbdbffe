"""Text files inside an installed Python package, package://name/file: CSV.

Spark reads them as a Python Data Source, so that executors look for the package on their machine.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pipelines.data.sources.content import blocks
from pipelines.data.sources.csv import Csv
from pipelines.data.sources.files import Range
from pipelines.data.sources.parsed import LINE, PROBLEM, RANGE, RECORD
from pipelines.data.sources.records import Dialect, cut
from pipelines.data.sources.text_table import examine


class Package(Csv):
    is_packed = False

    def records(self, spark: SparkSession) -> tuple[DataFrame, tuple[Range, ...]]:
        """A range for each file."""
        spark.dataSource.register(PackageSource)
        options = {"dialect": json.dumps(asdict(self.dialect())), "looks": json.dumps(self.looks)}
        reader, columns = spark.read.format("package").options(**options), [RECORD, PROBLEM, LINE, *self.looks]
        tables = [reader.load(file.path).toDF(*columns).withColumn(RANGE, F.lit(number)) for number, file in enumerate(self.files)]
        return reduce(DataFrame.unionAll, tables), tuple(Range(file, 0, file.bytes) for file in self.files)


class PackageSource(DataSource):
    """The records of a text file inside an installed Python package, with the fault of each; see `records.cut`."""

    @classmethod
    def name(cls) -> str:
        return "package"

    def schema(self) -> str:
        return ", ".join(["record string, problem string, line bigint", *(f"{name} boolean" for name in self._looks)])

    def reader(self, schema: StructType) -> DataSourceReader:
        return PackageReader(self.options["path"], Dialect(**json.loads(self.options.get("dialect", "{}"))), self._looks)

    @property
    def _looks(self) -> dict[str, str]:
        return dict(json.loads(self.options.get("looks", "{}")))


@dataclass
class PackageReader(DataSourceReader):
    path: str
    dialect: Dialect
    looks: dict[str, str]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return (examine(None, self.looks, batch) for batch in cut(blocks(self.path), self.dialect, self.path))
