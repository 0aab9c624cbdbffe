"""Settings of raw tables: the formats by name, the options that each supports, and the types of a schema.

Options and schema are checked when the config is read, so that most errors appear before Spark has started; Spark ignores misspelt options
without a warning."""

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pipelines.config import secrets
from pipelines.config.messages.validation_errors import show_value
from pipelines.config.messages.words import suggestion
from pipelines.config.secrets import is_secret
from pipelines.config.section import Section

_DATES = ("dateFormat", "timestampFormat", "timestampNTZFormat", "timeZone", "locale")
_ENCODINGS = ("encoding", "charset")
_FILE_CHOICE = ("pathGlobFilter", "recursiveFileLookup", "modifiedBefore", "modifiedAfter")
_CSV = (
    "sep", "delimiter", "quote", "escape", "comment", "header", "enforceSchema", "skipRows", "multiLine",
    "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", "nullValue", "nanValue", "positiveInf", "negativeInf", "emptyValue",
    "maxColumns", "maxCharsPerColumn",
)  # fmt: skip
_JSON = (
    "multiLine", "primitivesAsString", "allowComments", "allowUnquotedFieldNames", "allowSingleQuotes", "allowNumericLeadingZeros",
    "allowNonNumericNumbers", "allowBackslashEscapingAnyCharacter", "allowUnquotedControlChars",
)  # fmt: skip
_SWITCHES = {
    option.lower()
    for option in (
        "header", "enforceSchema", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", *_JSON, "wholetext", "mergeSchema",
        "recursiveFileLookup",
    )
}  # fmt: skip
"""Options, in lower case, that are true or false."""
TYPES = (
    *("boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long", "float", "real", "double", "decimal", "dec"),
    *("numeric", "date", "time", "timestamp", "timestamp_ntz", "timestamp_ltz", "string", "char", "character", "varchar", "binary"),
    *("interval", "void", "array", "map", "struct", "variant", "geometry", "geography"),
)
"""First words of the types of Spark SQL."""
_TOKEN = re.compile(r"--[^\n]*|/\*.*?\*/|`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\w+|[^\w\s]", re.DOTALL)
Value = str | bool | int | float
_TEXT = "pipelines.data.sources.text"


@dataclass(frozen=True)
class Format:
    """Rules for the settings of a table of one format."""

    options: tuple[str, ...] = ()
    needs_schema: bool = False
    rows_are_of_one_file: bool = False
    """Each row is made from one file, whose name may be a column."""
    rows_are_files: bool = False
    """The columns are `path` and `content`, and a schema gives no others."""
    implementation: str = ""
    """`module:Class` of the `pipelines.data.sources.base.RawTable` that reads it; settings of a class of their own say it themselves."""


FORMATS = {
    "csv": Format(_CSV + _DATES + _ENCODINGS, needs_schema=True, rows_are_of_one_file=True, implementation=f"{_TEXT}.csv:Csv"),
    "json": Format(_JSON + _DATES + _ENCODINGS, needs_schema=True, rows_are_of_one_file=True, implementation=f"{_TEXT}.json:Json"),
    "parquet": Format(
        ("mergeSchema", "datetimeRebaseMode", "int96RebaseMode", *_FILE_CHOICE),
        rows_are_of_one_file=True,
        implementation="pipelines.data.sources.parquet_table:Parquet",
    ),
    "text": Format(("wholetext", *_ENCODINGS), rows_are_of_one_file=True, implementation=f"{_TEXT}.text_table:Text"),
    "binaryFile": Format(_FILE_CHOICE, rows_are_files=True, implementation="pipelines.data.sources.files.spark_files:BinaryFile"),
    "package": Format(_CSV + _DATES + _ENCODINGS, implementation=f"{_TEXT}.csv:Csv"),
}
"""The core's formats by name. Every other one is a folder of `pipelines.formats`, or of another package."""


class TableSettings(Section):
    """Base class of the settings of all raw tables. Derive your own source from it, or from `FileTableSettings` if it reads files."""

    implementation: ClassVar[str]
    """`module:Class` of the `pipelines.data.sources.base.RawTable` that these settings configure; imported after Spark has started."""
    sampler: ClassVar[str] = ""
    """`module:function` that gives some rows of a large table for a trial, from its settings and the most bytes; None of a small one, which
    is read itself. Without it, the trial of a draft only analyses the query."""
    excluded_from_identity: ClassVar[frozenset[str]] = frozenset({"path"})
    """Settings that say where the rows are, or how they are read, and not which they are: `RawTable.identity` identifies those."""
    format: str
    """One of the built-in formats, such as `csv`, or `module:Class` of your own settings."""

    @property
    def place(self) -> Any:
        """How messages refer to the data of the table."""
        return self.format

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the files, if the table consists of files."""
        return ()

    def at(self, places: Sequence[str]) -> Self:
        """The table with the rows at other places, as `lockstep predict --input` names them. Raises ValueError if they cannot be its."""
        raise ValueError(
            f"is of format {self.format}, which has no path; set its own settings, as --source.tables.TABLE.SETTING VALUE, without --input"
        )

    def only_place(self, places: Sequence[str]) -> str:
        """The place of a table that has one. Raises ValueError for several."""
        if len(places) > 1:
            raise ValueError(f"is of format {self.format}, a table at one place, not {len(places)}; give one after the other")
        return places[0]


def spark_options(options: Mapping[str, Value]) -> dict[str, str]:
    """Options by lower-case name, with values written as Spark writes them."""
    return {option.lower(): str(value).lower() if isinstance(value, bool) else str(value) for option, value in options.items()}


def check_options(table_format: str, supported: tuple[str, ...], options: Mapping[str, Value]) -> None:
    """Raise ValueError for an option that the format does not have, or for a value that is not valid."""
    for option, value in options.items():
        if is_secret(option):
            raise ValueError(f"{option} is a secret, {secrets.ELSEWHERE}")
        if option.lower() not in map(str.lower, supported):
            remedy = suggestion(option, supported, f"choose one of {', '.join(supported)}" if supported else "it has no options")
            raise ValueError(f"{table_format} has no option {option}; {remedy}")
        if rule := _broken_rule(option.lower(), str(value)):
            raise ValueError(f"{option} is {show_value(value)}; {rule}")


def _broken_rule(option: str, value: str) -> str:
    if option in _SWITCHES and value.lower() not in ("true", "false"):
        return "it must be true or false"
    if option == "skiprows" and not value.isdecimal():
        return "it must be a whole number of lines"
    if option in ("quote", "escape") and (len(value) > 1 or not value.isascii()):
        return "it must be one ASCII character, or '' for none"
    if option in ("sep", "delimiter") and (not value or set(value) & set('"\r\n\0') or ("\\" in value and value != "\\t")):
        return "it must be the separator of values, such as ; or \\t, without double quotes, backslashes or line breaks"
    if option in ("maxcolumns", "maxcharspercolumn") and not value.removeprefix("-").isdecimal():
        return "it must be a whole number"
    if option in _ENCODINGS and not _encodes_text(value):
        return "it must be a text encoding that Python supports, such as ISO-8859-1"
    return ""


def _encodes_text(encoding: str) -> bool:
    """Whether Python has the codec, and text is unchanged when it is encoded and decoded byte by byte. base64 does not decode to
    text, and punycode cannot be decoded byte by byte."""
    sample = "a,1\r\n" + "b" * 100
    try:
        encoded = sample.encode(encoding)
        decoder = codecs.getincrementaldecoder(encoding)("strict")
        return "".join(decoder.decode(encoded[place : place + 1]) for place in range(len(encoded))) + decoder.decode(b"", True) == sample
    except (LookupError, ValueError):
        return False


def ddl_faults(ddl: str) -> list[str]:
    """Errors of the columns, such as `a: no type intt (did you mean int?)`. Spark itself finds errors that are not found here."""
    faults = []
    for column in _columns(ddl) if ddl.strip() else ():
        match column:
            case []:
                faults.append("a comma has no column before or after it")
            case [name]:
                faults.append(f"{show_value(name)} has no type")
            case [name, kind, *_] if kind.lower() not in TYPES:
                hint = suggestion(kind, TYPES, "a type of Spark SQL is needed")
                faults.append(f"{show_value(name)}: no type {show_value(kind)} ({hint})")
    return faults


def check_ddl(ddl: str) -> str:
    """The schema itself. Raises ValueError if a column has no type of Spark's."""
    if faults := ddl_faults(ddl):
        raise ValueError(f"{'; '.join(faults)}; give names and types as Spark DDL, such as `age int, name string`")
    return ddl


def ddl_names(ddl: str) -> list[str]:
    """The names of the columns."""
    return [column[0].strip("`") for column in _columns(ddl) if column]


def _columns(ddl: str) -> Iterator[list[str]]:
    """The tokens of each column, without the optional colon after its name."""
    column, depth = list[str](), 0
    for token in [*(token for token in _TOKEN.findall(ddl) if not token.startswith(("--", "/*"))), ","]:
        depth += (token in "<(") - (token in ">)")
        if token == "," and depth <= 0:
            yield column
            column = []
        elif token != ":" or len(column) != 1:
            column.append(token)
