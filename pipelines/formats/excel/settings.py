"""Settings of the format `excel`."""

from typing import ClassVar, Literal

from pydantic import Field

from pipelines.config.source.source import Table
from pipelines.config.source.table_settings import Format


class ExcelTable(Table):
    """A sheet of .xlsx files. It has the settings of every table that Spark reads, and needs a schema."""

    implementation: ClassVar[str] = "pipelines.formats.excel.table:Excel"
    own_rules: ClassVar[Format] = Format(("header", "skipRows", "nullValue"), needs_schema=True, rows_are_of_one_file=True)
    format: Literal["excel"] = "excel"
    sheet: str = Field("", exclude_if=lambda sheet: not sheet)
    """The sheet to read; by default the only one that is not hidden."""
