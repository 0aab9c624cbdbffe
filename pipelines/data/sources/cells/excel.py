"""Excel: a sheet of each .xlsx file."""

from pyspark.sql import DataFrame, SparkSession

from pipelines.config.source.table_settings import spark_options
from pipelines.data.sources.cells.cell_table import CellTable
from pipelines.data.sources.cells.workbook import SheetReader, check_openpyxl
from pipelines.data.sources.files.files import File

_LOCKS = "~$"
"""Begins the name of the file that Excel keeps beside an open workbook."""


class Excel(CellTable):
    def select(self, files: list[File]) -> list[File]:
        return [file for file in files if not file.path.rpartition("/")[2].startswith(_LOCKS)]

    @property
    def reader(self) -> SheetReader:
        options = spark_options(self.settings.options)
        null_text = self.settings.options.get("nullValue")
        return SheetReader(
            sheet=self.settings.sheet,
            has_header=options.get("header", "true") == "true",
            skipped_rows=int(options.get("skiprows", 0)),
            null_text=None if null_text is None else str(null_text),
        )

    def empty(self, spark: SparkSession) -> DataFrame:
        check_openpyxl(f"source.tables.{self.name}")
        return super().empty(spark)
