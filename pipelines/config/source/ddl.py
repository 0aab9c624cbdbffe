"""Checks the schema of a table when the config is read, so that most errors appear before Spark has started."""

import re
from collections.abc import Iterator

from pipelines.config.messages.did_you_mean import suggestion
from pipelines.config.messages.wording import show_value

TYPES = (
    *("boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long", "float", "real", "double", "decimal", "dec"),
    *("numeric", "date", "time", "timestamp", "timestamp_ntz", "timestamp_ltz", "string", "char", "character", "varchar", "binary"),
    *("interval", "void", "array", "map", "struct", "variant", "geometry", "geography"),
)
"""First words of the types of Spark SQL."""
_TOKEN = re.compile(r"--[^\n]*|/\*.*?\*/|`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\w+|[^\w\s]", re.DOTALL)
_COMMENTS = ("--", "/*")


def ddl_faults(ddl: str) -> list[str]:
    """Errors of the columns, such as `a: no type intt (did you mean int?)`. Spark itself finds errors that are not found here."""
    return [fault for column in _columns(ddl) if (fault := _fault(column))] if ddl.strip() else []


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
    for token in [*(token for token in _TOKEN.findall(ddl) if not token.startswith(_COMMENTS)), ","]:
        depth += (token in "<(") - (token in ">)")
        if token == "," and depth <= 0:
            yield column
            column = []
        elif token != ":" or len(column) != 1:
            column.append(token)


def _fault(column: list[str]) -> str:
    match column:
        case []:
            return "a comma has no column before or after it"
        case [name]:
            return f"{show_value(name)} has no type"
        case [name, kind, *_] if kind.lower() not in TYPES:
            return f"{show_value(name)}: no type {show_value(kind)} ({suggestion(kind, TYPES, 'a type of Spark SQL is needed')})"
    return ""
