"""HDF5: the datasets of a group in each file."""

from pyspark.sql import DataFrame, SparkSession

from pipelines.data.sources.arrow_table import ArrowTable
from pipelines.formats.hdf5.datasets import DatasetReader, check_h5py
from pipelines.formats.hdf5.settings import Hdf5Table


class Hdf5(ArrowTable[Hdf5Table]):
    @property
    def reader(self) -> DatasetReader:
        return DatasetReader(self.settings.group)

    def empty(self, spark: SparkSession) -> DataFrame:
        check_h5py(f"source.tables.{self.name}")
        return super().empty(spark)
