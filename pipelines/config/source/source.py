"""`source`: raw tables, the query over them, and conditions that its rows must satisfy."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SerializeAsAny, ValidationInfo, field_validator, model_validator

from pipelines.config.dataset.windows import WindowSettings
from pipelines.config.effects import OnlyWith
from pipelines.config.kinds import Kinds
from pipelines.config.section import Fraction, Name, Section, Text
from pipelines.config.source.table_settings import FORMATS, Format, TableSettings, Value, check_ddl, check_options

if TYPE_CHECKING:
    CoreFormat = str
else:
    CoreFormat = Literal[tuple(FORMATS)]


class PathTableSettings(TableSettings):
    """Base class of the settings of tables at a path. A relative one starts at LOCKSTEP_HOME, or else at the current folder."""

    path: Text | Annotated[tuple[Text, ...], Field(min_length=1)]
    """A path or a URI, or a list of these."""

    @property
    def place(self) -> Any:
        return self.path

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path,) if isinstance(self.path, str) else self.path

    def at(self, places: Sequence[str]) -> Self:
        return self.model_copy(update={"path": places[0] if len(places) == 1 else tuple(places)})


class FileTableSettings(PathTableSettings):
    """Base class of the settings of tables that consist of files."""

    path: Text | Annotated[tuple[Text, ...], Field(min_length=1)]
    """A file, a folder, a glob pattern, a URI that Spark can read, or a list of these. For the format `package`: package://name/file.
    In Parquet, CSV, JSON, text and binaryFile, folders `column=value` below it, or below what its glob matches, make columns: of text, or
    of the type in the schema. Files that the path or its glob names themselves have none."""
    checksum: Literal["sha256", "stat"] = "sha256"
    """`stat` uses size and modification time instead of a hash of the content; for very large inputs."""


def _takes_schema(table_format: str, _: str) -> bool:
    settings = Table if table_format in FORMATS else TABLES.class_for(table_format)
    return not (issubclass(settings, Table) and settings.find_rules(table_format).rows_are_files)


def _formats_with_schema() -> tuple[str, ...]:
    return tuple(name for name, settings in TABLES.by_name.items() if issubclass(settings, Table) and _takes_schema(name, ""))


class Table(FileTableSettings):
    """One raw table that Spark reads."""

    own_rules: ClassVar[Format | None] = None
    """Of a class for one format, which derives from this one: what its settings may say."""
    format: CoreFormat
    """Format of the files. `csv`, `json`, `parquet`, `text` and `binaryFile` are Spark's; `binaryFile` has one row with `path` and
    `content` for each file, and `package` reads a CSV file inside an installed Python package."""
    ddl: Annotated[str, AfterValidator(check_ddl), OnlyWith(".format", _formats_with_schema, fits=_takes_schema)] = Field(
        "", alias="schema"
    )
    """Columns as Spark DDL: `age int, workclass string`. Required where an inferred schema would depend on the rows, as for CSV and JSON.
    A number in CSV and JSON has digits, a sign, a point and an exponent; NaN and Infinity are numbers only where an option names them.
    Keys of JSON match in any case, unless an option admits comments, single quotes or keys without quotes."""
    options: dict[str, Value] = {}
    """Options of Spark's reader for the format."""
    file_column: str = ""
    """Name of a column to add: the path of the row's file, relative to the table's folder, or to that of its glob; of a single file, its
    name. For formats that make each row from one file, such as `csv`; where rows are whole files, as for `binaryFile`, they have `path`."""

    def __new__(cls, *_: Any, **values: Any) -> "Table":
        """In Python, `Table(format="json", …)` is of the class for that format, if it has one."""
        name = values.get("format")
        kind = TABLES.by_name.get(name) if cls is Table and isinstance(name, str) and name not in FORMATS else None
        return super().__new__(kind if kind and issubclass(kind, Table) else cls)

    @classmethod
    def find_rules(cls, table_format: str) -> Format:
        return cls.own_rules or FORMATS[table_format]

    @property
    def rules(self) -> Format:
        return self.find_rules(self.format)

    @model_validator(mode="before")
    @classmethod
    def _settings_are_of_this_format(cls, values: Any) -> Any:
        own_names = {name for field, settings in cls.model_fields.items() for name in (field, settings.alias)}
        if not isinstance(values, dict) or not (table_format := values.get("format") or cls.model_fields["format"].get_default()):
            return values
        for name in [name for name in values if name not in own_names and values[name]]:
            kinds = [(reader, kind) for reader, kind in TABLES.by_name.items() if issubclass(kind, Table)]
            readers = [reader for reader, kind in kinds if name in kind.model_fields]
            if readers:
                raise ValueError(f"{name} is set, which format {table_format} does not read; remove it, or set format: {readers[0]}")
        return values

    @field_validator("options")
    @classmethod
    def _options_exist(cls, options: dict[str, Value], validation: ValidationInfo) -> dict[str, Value]:
        if "format" in validation.data:
            check_options(validation.data["format"], cls.find_rules(validation.data["format"]).options, options)
        return options

    @field_validator("file_column")
    @classmethod
    def _file_column_is_a_name(cls, name: str) -> str:
        if name and not re.fullmatch(r"[A-Za-z]\w{0,99}", name, re.ASCII):
            raise ValueError("must be a letter and up to 99 more letters, digits and _")
        return name

    @model_validator(mode="after")
    def _settings_fit_the_format(self) -> "Table":
        if self.file_column and not self.rules.rows_are_of_one_file:
            remedy = "select its column path" if self.rules.rows_are_files else "remove it"
            raise ValueError(f"file_column is {self.file_column}, which format {self.format} does not add; {remedy}")
        if self.rules.needs_schema and not self.ddl:
            raise ValueError(f"{self.format} needs a schema, such as `schema: age int, name string`")
        return self


TABLES = Kinds(TableSettings, "format", "lockstep.formats", "pipelines.config.source", example="csv")
NamedTable = Annotated[SerializeAsAny[TableSettings], BeforeValidator(TABLES.parse)]


class DriftLimits(Section):
    """How far a column of the training split may be from the newest earlier version of the pipeline. A difference counts if it is above its
    limit and beyond chance."""

    psi: float = Field(0.25, ge=0)
    """Maximum population stability index, over ten bins at the earlier version's quantiles, or its categories."""
    missing: Fraction = 0.05
    """Maximum difference between the shares of missing values."""
    chance: Fraction = 0.01
    """Probability that ETL fails although all columns have the same distributions as before."""


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
    drift: DriftLimits | None = Field(None, exclude_if=lambda drift: drift is None)
    """Limits of what may differ from the newest earlier version of the same pipeline in `dataset.path`; `{}` for the defaults. If one is
    exceeded, no version is made. Without it, nothing is compared."""

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
        """Settings that are no part of an identity: limits of drift, places of tables, and columns that are not added."""
        added = {name for name, table in self.tables.items() if getattr(table, "file_column", "")}
        hidden = {name: set(table.excluded_from_identity) for name, table in self.tables.items()}
        return {"drift": True, "tables": {name: keys if name in added else keys | {"file_column"} for name, keys in hidden.items()}}

    @property
    def sql(self) -> str:
        return self.query or f"SELECT * FROM `{next(iter(self.tables))}`"
