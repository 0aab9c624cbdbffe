"""Avro: the records of each file are rows."""

from pyspark.sql import DataFrame, SparkSession

from pipelines.data.sources.arrow_table import ArrowTable
from pipelines.formats.avro.records import RecordReader, check_fastavro
from pipelines.formats.avro.settings import AvroTable


class Avro(ArrowTable[AvroTable]):
    @property
    def reader(self) -> RecordReader:
        return RecordReader()

    def empty(self, spark: SparkSession) -> DataFrame:
        check_fastavro(f"source.tables.{self.name}")
        return super().empty(spark)
