"""The names that keys of a JSON table may have, and the shape of its usual records, which have no others: an expression for RE2, three
times as fast as a search for keys."""

import json
import re
from dataclasses import dataclass, field

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

MOST_NAMES = 100
"""Of more, RE2 follows too many at once: 400 take a hundred times as long."""
_STRING = r'"(?:[^"\\]|\\.)*"'
_TEXT = r'[^"{}:\\]'
_BLANK = r"[ \t\r\n]*"


@dataclass(frozen=True)
class Names:
    """The names that an object may have as keys; of a map, any."""

    fields: dict[str, "Names | None"] = field(default_factory=dict)
    values: "Names | None" = None
    """Of a map's values."""
    is_map: bool = False

    def matching(self, key: str) -> str | None:
        """The field of that name, or the one that differs in case alone."""
        return key if key in self.fields else next((name for name in self.fields if name.lower() == key.lower()), None)


def key_names(kind: DataType) -> Names | None:
    """The keys of the objects in values of a type; None if it has no objects."""
    match kind:
        case StructType():
            return Names({column.name: key_names(column.dataType) for column in kind})
        case MapType():
            return Names(values=key_names(kind.valueType), is_map=True)
        case ArrayType():
            return key_names(kind.elementType)
    return None


def shape(names: Names) -> str | None:
    """An expression for records in which the keys of each object are the schema's, as written there and in its order, each at most once.
    A string before a colon is a key, and no other colon is outside strings. Maps have no shape, nor has a schema of many names."""
    return rf"(?s)\A{_BLANK}{_object(names)}{_BLANK}\z" if _size(names) <= MOST_NAMES else None


def _size(names: Names | None) -> int:
    return sum(1 + _size(inner) for inner in names.fields.values()) if names else 0


def _object(names: Names) -> str:
    keys = (re.escape(json.dumps(name, ensure_ascii=False)) for name in names.fields)
    pairs = [rf"{key}{_BLANK}:{_value(inner)}" for key, inner in zip(keys, names.fields.values(), strict=True)]
    return rf"\{{{_TEXT}*{''.join(f'(?:{pair})?' for pair in pairs)}\}}"


def _value(names: Names | None) -> str:
    """All text between a colon and the next key: lists and commas too, since Spark refuses what is no JSON."""
    inner = f"|{_object(names)}" if names and not names.is_map else ""
    return f"(?:{_TEXT}|{_STRING}{inner})*"
