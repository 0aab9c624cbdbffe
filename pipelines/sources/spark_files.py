"""Tables of files that Spark lists and reads, where folders `column=value` make columns."""

from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from pipelines.compat.spark import count_input_files
from pipelines.config.options import spark_options
from pipelines.config.source import Table
from pipelines.errors import SourceError
from pipelines.sources.file_table import FileTable
from pipelines.sources.parsed import Options

_LEAVING_OUT = {"pathglobfilter", "modifiedbefore", "modifiedafter"}


class SparkFiles(FileTable[Table]):
    @property
    def options(self) -> Options:
        return spark_options(self.settings.options)

    def reader(self, spark: SparkSession) -> DataFrameReader:
        return spark.read.format(self.settings.format).options(**self.options)

    def listed(self, rows: DataFrame) -> int:
        """The number of files that Spark reads. Raises SourceError if it skips files that no option excludes."""
        there, listed = len(self.found), count_input_files(rows)
        if listed != there and not _LEAVING_OUT & self.options.keys():
            raise SourceError(
                f"{self.settings.path} holds {there} files, of which Spark reads {listed}; set options: {{recursiveFileLookup: true}}"
            )
        return listed
