"""`source`: the raw tables, the query over them, and what its rows must satisfy."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro
from pydantic import Field, ValidationInfo, field_validator, model_validator

from pipelines.config.ddl import ddl_faults
from pipelines.config.formats import FORMATS
from pipelines.config.options import Value, check_options
from pipelines.config.section import Fraction, Name, Section, Text

if TYPE_CHECKING:
    FormatName = str
else:
    FormatName = Literal[tuple(FORMATS)]


class TableSettings(Section):
    """Base of every raw table's settings. A source of your own derives from it, or from `FileTableSettings` if it is files."""

    implementation: ClassVar[str]
    """`module:Class` of the `pipelines.sources.base.RawTable` that these settings configure; imported once Spark runs."""
    format: str
    """One of the built-in formats, such as `csv`, or `module:Class` of your own settings."""

    @property
    def place(self) -> Any:
        """What a message calls the table's data."""
        return self.format

    @property
    def paths(self) -> tuple[str, ...]:
        """Where files lie, if it is files."""
        return ()


class FileTableSettings(TableSettings):
    """Base of the settings of tables that are files."""

    path: Text | Annotated[tuple[Text, ...], Field(min_length=1)]
    """A file, a folder, a glob, any URI Spark reads, or several of them; `package` takes package://name/file."""
    checksum: Literal["sha256", "stat"] = "sha256"
    """`stat` takes size and modification time in place of a hash of the bytes; for very large inputs."""

    @property
    def place(self) -> Any:
        return self.path

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path,) if isinstance(self.path, str) else self.path


class Table(FileTableSettings):
    """One raw table, as Spark reads it."""

    format: FormatName
    """Spark's own formats, of which `binaryFile` has a row with `path` and `content` for each file of a folder; `idx` reads
    MNIST's files, `package` a file inside an installed Python package, `tar` the files in archives as binaryFile has them."""
    ddl: Annotated[str, tyro.conf.arg(name="schema")] = Field("", alias="schema")
    """Columns as Spark DDL, `age int, workclass string`. CSV and JSON need it: inferring depends on the rows seen."""
    options: dict[str, Value] = {}
    """Of Spark's reader for the format."""

    @field_validator("ddl")
    @classmethod
    def _columns_have_types(cls, ddl: str) -> str:
        if faults := ddl_faults(ddl):
            raise ValueError(f"{'; '.join(faults)}; give names and types as Spark DDL, such as `age int, name string`")
        return ddl

    @field_validator("options")
    @classmethod
    def _somebody_obeys_them(cls, options: dict[str, Value], info: ValidationInfo) -> dict[str, Value]:
        if "format" in info.data:
            check_options(info.data["format"], options)
        return options

    @model_validator(mode="after")
    def _text_formats_name_their_columns(self) -> "Table":
        if FORMATS[self.format].needs_schema and not self.ddl:
            raise ValueError(f"{self.format} needs a schema, such as `schema: age int, name string`")
        return self


class Source(Section):
    """Raw tables and the Spark SQL that turns them into rows."""

    tables: dict[Name, Table] = {}
    """By the name the query uses; one with spaces or - stands in backticks there."""
    query: str = ""
    """Spark SQL over the tables: joins and cleaning live here. Empty with a single table: all of its columns."""
    expect: dict[Name, str] = {}
    """Name: SQL condition. A row for which it is not true (NULL included) is quarantined under that name."""
    max_quarantined: Fraction = 0.01
    """Share that may be refused before the whole version is: of all records, and of malformed records and the query's rows together."""

    @field_validator("tables")
    @classmethod
    def _names_differ_in_more_than_case(cls, tables: dict[str, Table]) -> dict[str, Table]:
        lower = [name.lower() for name in tables]
        if twice := [name for name in tables if lower.count(name.lower()) > 1]:
            raise ValueError(f"{' and '.join(twice)} are one name to SQL, which ignores case; rename one")
        return tables

    @model_validator(mode="after")
    def _query_is_known(self) -> "Source":
        if not self.query and len(self.tables) != 1:
            raise ValueError(f"a query is needed with {len(self.tables)} tables; it may be left out with one")
        return self

    @property
    def sql(self) -> str:
        return self.query or f"SELECT * FROM `{next(iter(self.tables))}`"
