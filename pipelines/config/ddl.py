"""A table's schema, looked at with the config: most of what is wrong with one is said before Spark takes its seconds to start."""

import re
from collections.abc import Iterator

from pipelines.config.did_you_mean import near

TYPES = (
    *("boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long", "float", "real", "double", "decimal", "dec"),
    *("numeric", "date", "time", "timestamp", "timestamp_ntz", "timestamp_ltz", "string", "char", "character", "varchar", "binary"),
    *("interval", "void", "array", "map", "struct", "variant", "geometry", "geography"),
)
"""Words that a type of Spark SQL begins with."""
_TOKEN = re.compile(r"--[^\n]*|/\*.*?\*/|`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\w+|[^\w\s]", re.DOTALL)
_COMMENTS = ("--", "/*")


def ddl_faults(ddl: str) -> list[str]:
    """What is wrong with its columns, as `a: no type intt (int is near)`; Spark finds what this passes over."""
    return [fault for column in _columns(ddl) if (fault := _fault(column))] if ddl.strip() else []


def _columns(ddl: str) -> Iterator[list[str]]:
    """Each column's tokens, without the optional colon after its name."""
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
            return f"{name} has no type"
        case [name, kind, *_] if kind.lower() not in TYPES:
            return f"{name}: no type {kind} ({near(kind, TYPES, 'a type of Spark SQL is needed')})"
    return ""
