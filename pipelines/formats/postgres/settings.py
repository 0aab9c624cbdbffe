"""Settings of the format `postgres`."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from pipelines.config.section import Text
from pipelines.config.source.table_settings import TableSettings
from pipelines.formats.postgres.address import address_fault, split_address, without_login

_Optional = Annotated[str, Field(exclude_if=lambda text: not text)]


class PostgresTable(TableSettings):
    """A table, a view or a query of PostgreSQL, read in one snapshot."""

    implementation: ClassVar[str] = "pipelines.formats.postgres.table:Postgres"
    sampler: ClassVar[str] = "pipelines.formats.postgres.draft:rows_to_try"
    excluded_from_identity: ClassVar[frozenset[str]] = frozenset({"url", "key", "tasks"})
    format: Literal["postgres"] = "postgres"
    url: Text
    """`postgresql://user@host:port/database`, with parameters of libpq such as `?sslmode=require`. It has no password: libpq takes it from
    the environment variable `PGPASSWORD`, or from the file that `PGPASSFILE` names, on Spark's executors too."""
    table: _Optional = ""
    """The table or view, such as `orders` or `sales.orders`. A name with capitals or dots has quotes, as in SQL: `'sales."Orders"'`."""
    query: _Optional = ""
    """In place of `table`: a SELECT in PostgreSQL's SQL. One task reads it, unless `key` is set."""
    key: _Optional = ""
    """A column of integers, by whose ranges several tasks read a view or a query."""
    watermark: _Optional = ""
    """A column of integers, dates or timestamps that only grows: every new row has a greater value than all older ones, which stay as they
    are. With it, an ETL can read the new rows alone."""
    tasks: int = Field(0, ge=0, le=10_000, exclude_if=lambda tasks: not tasks)
    """Tasks that read, each with a connection of its own. By default 0: two for each core of Spark, and at most 32."""

    @property
    def place(self) -> Any:
        return f"{without_login(self.url)} {self.table or 'query'}"

    def at(self, places: Sequence[str]) -> Self:
        """At an address `postgresql://user@host/database?table=name`, or with `query=SELECT …`; without one, the same table there."""
        url, relation = split_address(self.only_place(places))
        if fault := address_fault(url):
            raise ValueError(f"is of format {self.format}: {fault}")
        if len(relation) > 1:
            raise ValueError(f"is of format {self.format}, and {without_login(url)} has a table and a query; give one of them")
        return self.model_copy(update={"url": url, **({"table": "", "query": "", "key": "", **relation} if relation else {})})

    @field_validator("url")
    @classmethod
    def _url_names_a_database(cls, url: str) -> str:
        if fault := address_fault(url):
            raise ValueError(fault)
        return url

    @model_validator(mode="after")
    def _reads_a_table_or_a_query(self) -> "PostgresTable":
        if bool(self.table) == bool(self.query):
            both = "both" if self.table else "neither"
            raise ValueError(f"postgres reads a table or a query ({both} is set); set one of table and query")
        return self
