"""Excel: a sheet of each .xlsx file."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from pipelines.config.source.table_settings import spark_options
from pipelines.data.sources.cell_table import CellTable
from pipelines.data.sources.files.listing import File
from pipelines.formats.excel.settings import ExcelTable
from pipelines.formats.excel.workbook import SheetReader, check_openpyxl


class Excel(CellTable[ExcelTable]):
    def select(self, files: Sequence[File]) -> Sequence[File]:
        # Excel keeps a file beside an open workbook, whose name begins so.
        return [file for file in files if not file.path.rpartition("/")[2].startswith("~$")]

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
