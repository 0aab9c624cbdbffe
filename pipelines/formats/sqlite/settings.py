"""Settings of the format `sqlite`."""

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from pipelines.config.source.source import Table
from pipelines.config.source.table_settings import Format


class SqliteTable(Table):
    """A table of SQLite databases. It has the settings of every table that Spark reads, and needs a schema."""

    implementation: ClassVar[str] = "pipelines.formats.sqlite.table:Sqlite"
    own_rules: ClassVar[Format] = Format(needs_schema=True, rows_are_of_one_file=True)
    format: Literal["sqlite"] = "sqlite"
    table: str = Field("", exclude_if=lambda table: not table)
    """The table or view to read."""
    query: str = Field("", exclude_if=lambda query: not query)
    """In place of `table`: a SELECT in SQLite's SQL. It may not use the clock, or chance."""

    @model_validator(mode="after")
    def _reads_a_table_or_a_query(self) -> "SqliteTable":
        if bool(self.table) == bool(self.query):
            raise ValueError(f"sqlite reads a table or a query ({'both' if self.table else 'neither'} is set); set one of table and query")
        return self
