"""`source`: raw tables, the query over them, and conditions that its rows must satisfy."""

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SerializeAsAny, ValidationInfo, field_validator, model_validator

from pipelines.config.dataset.windows import WindowSettings
from pipelines.config.effects import OnlyWith
from pipelines.config.kinds import Kinds
from pipelines.config.section import Fraction, Name, Section, Text
from pipelines.config.source.table_settings import FORMATS, TableSettings, Value, check_ddl, check_options

ROWS_OF_ONE_FILE = ("csv", "json", "parquet", "text", "excel", "sqlite")
"""Formats that make each row from one file."""

_WITH_SCHEMA = ("csv", "json", "parquet", "text", "idx", "package", "excel", "sqlite")
"""Formats whose columns a schema may give."""


def _check_file_column(name: str) -> str:
    if name and not re.fullmatch(r"[A-Za-z]\w{0,99}", name, re.ASCII):
        raise ValueError("must be a letter and up to 99 more letters, digits and _")
    return name


if TYPE_CHECKING:
    FormatName = str
else:
    FormatName = Literal[tuple(FORMATS)]


class FileTableSettings(TableSettings):
    """Base class of the settings of tables that consist of files."""

    path: Text | Annotated[tuple[Text, ...], Field(min_length=1)]
    """A file, a folder, a glob pattern, a URI that Spark can read, or a list of these. For the format `package`: package://name/file.
    In Parquet, CSV, JSON, text and binaryFile, folders `column=value` below it, or below what its glob matches, make columns: of text, or
    of the type in the schema. Files that the path or its glob names themselves have none."""
    checksum: Literal["sha256", "stat"] = "sha256"
    """`stat` uses size and modification time instead of a hash of the content; for very large inputs."""

    @property
    def place(self) -> Any:
        return self.path

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path,) if isinstance(self.path, str) else self.path


class Table(FileTableSettings):
    """One raw table that Spark reads."""

    format: FormatName
    """Format of the files. `csv`, `json`, `parquet`, `text` and `binaryFile` are Spark's; `binaryFile` has one row with `path` and
    `content` for each file. `tar` has such a row for each file in an archive, `idx` reads the files of MNIST, `excel` a sheet of
    .xlsx files, `sqlite` a table of SQLite's, and `package` a CSV file inside an installed Python package."""
    ddl: Annotated[str, OnlyWith(".format", _WITH_SCHEMA)] = Field("", alias="schema")
    """Columns as Spark DDL: `age int, workclass string`. Required for CSV, JSON, Excel and SQLite, where an inferred schema would depend on
    the rows.
    A number in CSV and JSON has digits, a sign, a point and an exponent; NaN and Infinity are numbers only where an option names them.
    Keys of JSON match in any case, unless an option admits comments, single quotes or keys without quotes."""
    options: dict[str, Value] = {}
    """Options of Spark's reader for the format."""
    file_column: Annotated[str, AfterValidator(_check_file_column)] = ""
    """Name of a column to add: the path of the row's file, relative to the table's folder, or to that of its glob; of a single file, its
    name. For `csv`, `json`, `parquet`, `text`, `excel` and `sqlite`; rows of `binaryFile` and `tar` have `path`."""
    sheet: str = Field("", exclude_if=lambda sheet: not sheet)
    """Of `excel`: the sheet to read; by default the only one that is not hidden."""
    table: str = Field("", exclude_if=lambda table: not table)
    """Of `sqlite`: the table or view to read."""
    query: str = Field("", exclude_if=lambda query: not query)
    """Of `sqlite`, in place of `table`: a SELECT in SQLite's SQL. It may not use the clock, or chance."""

    @field_validator("ddl")
    @classmethod
    def _columns_have_types(cls, ddl: str) -> str:
        return check_ddl(ddl)

    @field_validator("options")
    @classmethod
    def _options_exist(cls, options: dict[str, Value], validation: ValidationInfo) -> dict[str, Value]:
        if "format" in validation.data:
            check_options(validation.data["format"], options)
        return options

    @model_validator(mode="after")
    def _rows_come_from_one_file(self) -> "Table":
        if self.file_column and self.format not in ROWS_OF_ONE_FILE:
            remedy = "select its column path" if self.format in ("binaryFile", "tar") else "remove it"
            raise ValueError(f"file_column is {self.file_column}, which format {self.format} does not add; {remedy}")
        return self

    @model_validator(mode="after")
    def _has_what_its_format_reads(self) -> "Table":
        settings = {"sheet": "excel", "table": "sqlite", "query": "sqlite"}
        if wrong := [name for name, reader in settings.items() if getattr(self, name) and self.format != reader]:
            raise ValueError(f"{wrong[0]} is set, which format {self.format} does not read; remove it, or set format: {settings[wrong[0]]}")
        if self.format == "sqlite" and bool(self.table) == bool(self.query):
            raise ValueError(f"sqlite reads a table or a query ({'both' if self.table else 'neither'} is set); set one of table and query")
        return self

    @model_validator(mode="after")
    def _text_formats_name_their_columns(self) -> "Table":
        if FORMATS[self.format].needs_schema and not self.ddl:
            raise ValueError(f"{self.format} needs a schema, such as `schema: age int, name string`")
        return self


TABLES = Kinds(TableSettings, "format", "lockstep.formats", "pipelines.config.source", example="csv")
NamedTable = Annotated[SerializeAsAny[TableSettings], BeforeValidator(TABLES.parse)]


class Source(Section):
    """Raw tables, and the Spark SQL query that turns them into rows."""

    tables: dict[Name, NamedTable] = {}
    """Raw tables by the name that the query uses. In the query, a name with spaces or - needs backticks."""
    query: str = ""
    """Spark SQL over the tables, for joins and cleaning. May be empty with a single table; then all of its columns are taken."""
    windows: WindowSettings | None = Field(None, exclude_if=lambda windows: windows is None)
    """Columns made of the rows before a row, such as lags; without it, there are none."""
    expect: dict[Name, str] = {}
    """SQL conditions by name. A row for which a condition is false or NULL is quarantined, with the name as the reason."""
    max_quarantined: Fraction = 0.01
    """Maximum share of quarantined rows: malformed records among all records, and all quarantined rows among malformed records and rows
    of the query. If it is exceeded, no version is made."""

    @field_validator("tables")
    @classmethod
    def _names_differ_in_more_than_case(cls, tables: dict[str, TableSettings]) -> dict[str, TableSettings]:
        lower = [name.lower() for name in tables]
        if twice := [name for name in tables if lower.count(name.lower()) > 1]:
            raise ValueError(f"{' and '.join(twice)} are the same name in SQL, which ignores case; rename one")
        return tables

    @model_validator(mode="after")
    def _query_is_known(self) -> "Source":
        if not self.query and len(self.tables) != 1:
            raise ValueError(f"{len(self.tables)} tables need a query; only with a single table may it be empty")
        return self

    @property
    def excluded_from_identity(self) -> dict[str, Any]:
        """Settings of tables that are no part of an identity: paths, since checksums identify the files, and columns that are not added."""
        added = {name for name, table in self.tables.items() if getattr(table, "file_column", "")}
        return {"tables": {name: {"path"} if name in added else {"path", "file_column"} for name in self.tables}}

    @property
    def sql(self) -> str:
        return self.query or f"SELECT * FROM `{next(iter(self.tables))}`"
