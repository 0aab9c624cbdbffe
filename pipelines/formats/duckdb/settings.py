"""Settings of the format `duckdb`."""

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from pipelines.config.source.source import Table
from pipelines.config.source.table_settings import Format


class DuckdbTable(Table):
    """A table of DuckDB's database files. It has the settings of every table that Spark reads; the types are the database's."""

    implementation: ClassVar[str] = "pipelines.formats.duckdb.table:Duckdb"
    own_rules: ClassVar[Format] = Format(rows_are_of_one_file=True)
    format: Literal["duckdb"] = "duckdb"
    table: str = Field("", exclude_if=lambda table: not table)
    """The table or view to read, such as `orders` or `sales.orders`."""
    query: str = Field("", exclude_if=lambda query: not query)
    """In place of `table`: a SELECT in DuckDB's SQL. It reads the database's tables, and neither other files nor the clock."""

    @model_validator(mode="after")
    def _reads_a_table_or_a_query(self) -> "DuckdbTable":
        if bool(self.table) == bool(self.query):
            raise ValueError(f"duckdb reads a table or a query ({'both' if self.table else 'neither'} is set); set one of table and query")
        return self
