"""SQL of a draft: names, templates with {} for what is put in, and queries that rename or select columns."""

import re
from collections.abc import Mapping

FieldPath = tuple[str, ...]
"""The name of a column, or the names from it to a field of its structs."""
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_KEYWORDS = re.compile(
    "all|and|any|as|between|by|case|cast|cross|distinct|else|end|except|exists|false|from|full|group|having|in|inner|intersect|interval|is|"
    "join|lateral|left|like|limit|natural|not|null|on|or|order|outer|right|select|then|true|union|unique|using|values|when|where|with",
    re.IGNORECASE,
)
"""Words of SQL that need backticks as a name, here or there."""


def renaming_query(names: Mapping[str, str]) -> str:
    """The query that gives columns these new names, with {} for its table; `*` if they have them."""
    return selecting_query({new: sql_name(name) for name, new in names.items()})


def selecting_query(expressions: Mapping[str, str]) -> str:
    """The query that selects these expressions, each by the name of its column, with {} for its table; `*` if all are that name."""
    if all(expression == sql_name(name) for name, expression in expressions.items()):
        return "*"
    named = ((expression, sql_name(name)) for name, expression in expressions.items())
    selected = ", ".join(expression if expression == name else f"{expression} AS {name}" for expression, name in named)
    return f"SELECT {escape_braces(selected)} FROM {{}}"


def sql_name(name: str) -> str:
    """The name as an identifier of Spark SQL."""
    return name if _PLAIN.fullmatch(name) and not _KEYWORDS.fullmatch(name) else f"`{name.replace('`', '``')}`"


def escape_braces(sql: str) -> str:
    """SQL as a part of a template, which has {} for what is put in."""
    return sql.replace("{", "{{").replace("}", "}}")


def sql_path(path: FieldPath) -> str:
    """The field as an expression of Spark SQL."""
    return ".".join(map(sql_name, path))
