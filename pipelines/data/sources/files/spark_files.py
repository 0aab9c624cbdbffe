"""Tables of files that Spark lists and reads, where folders `column=value` make columns."""

from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from pipelines.config.messages.counting import show_count
from pipelines.config.source.options import spark_options
from pipelines.config.source.source import Table
from pipelines.data.sources.files.file_table import FileTable
from pipelines.data.sources.text.parsed import Options
from pipelines.errors import SourceError
from pipelines.runtime.compat.spark import count_input_files, jvm

_LEAVING_OUT = {"pathglobfilter", "modifiedbefore", "modifiedafter"}


class SparkFiles(FileTable[Table]):
    @property
    def options(self) -> Options:
        return spark_options(self.settings.options)

    def reader(self, spark: SparkSession) -> DataFrameReader:
        """Raises SourceError if a name of a file is none for Spark's Java, which would pass the file over."""
        check_names(str(self.settings.place), [file.path for file in self.files], str(jvm().System.getProperty("sun.jnu.encoding")))
        return spark.read.format(self.settings.format).options(**self.options)

    def count_files(self, rows: DataFrame) -> int:
        """The number of files that Spark reads. Raises SourceError if it skips files that no option excludes."""
        count, spark_count = len(self.files), count_input_files(rows)
        if spark_count != count and not _LEAVING_OUT & self.options.keys():
            raise SourceError(
                f"{self.settings.path} holds {show_count(count, 'file')}, of which Spark reads {spark_count}; set options: "
                "{recursiveFileLookup: true}"
            )
        return spark_count


def check_names(place: str, paths: list[str], encoding: str) -> None:
    """Raises SourceError for a file whose name is not ASCII, if Java takes the names of files for text of another encoding than UTF-8."""
    if encoding.upper() not in ("UTF-8", "UTF8") and (path := next((path for path in paths if not path.isascii()), None)):
        raise SourceError(
            f"{place}: Java takes file names for {encoding} and cannot read {path}; start spark-submit with the environment variable "
            "LC_ALL=C.UTF-8"
        )
