"""Raw values, as JSON has them, as columns of the types that the query gave."""

import base64
import binascii
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any

import numpy as np

Encode = Callable[..., tuple[np.ndarray, np.ndarray]]
"""Encodes columns, given the settings and the state of an encoder: values of shape (rows, …), and a mask of the refused rows."""
ENCODERS: dict[str, Encode] = {}
"""By the encoder's name in the manifest."""
FAULTS: dict[str, Callable[..., str]] = {}
"""Says why an encoder refuses a row, given its settings and the row's raw values; of the encoders that say so in ETL."""

_INTEGER = re.compile(r"(u?)int(8|16|32|64)")
_DECIMAL = re.compile(r"decimal\d*\((\d+), (-?\d+)\)")
_TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns)(?:, tz=(.*))?\]")
_LIST = re.compile(r"(?:large_|fixed_size_)?list<[^:]+: (.+?)(?: not null)?>(?:\[\d+\])?")
_WIDE = Context(prec=80)


@dataclass(frozen=True)
class Column:
    """The values of a column, None for NULL, and its type as Arrow writes it."""

    kind: str
    values: Sequence[Any]


def encoder(name: str) -> Callable[[Encode], Encode]:
    """Register an encoder by its name."""

    def register(encode: Encode) -> Encode:
        ENCODERS[name] = encode
        return encode

    return register


def parse_columns(rows: Sequence[Mapping[str, Any]], kinds: Mapping[str, str], first: int = 0) -> dict[str, Column]:
    """A column for each name in `kinds`. Raises ValueError if a row lacks a column, or has a value of another type; `first` is the
    number of the first row there."""
    columns = {}
    for number, row in enumerate(rows, first):
        if not isinstance(row, Mapping):
            raise ValueError(f"row {number} is {row!r:.80}, and a row is a JSON object")
    for name, kind in kinds.items():
        parse = parser(kind)
        values = []
        for number, row in enumerate(rows, first):
            if name not in row:
                raise ValueError(f"row {number} has no column {name}; a row has {', '.join(kinds)}, with null for what is missing")
            try:
                values.append(parse(row[name]))
            except (TypeError, ValueError, ArithmeticError) as error:
                raise ValueError(f"row {number}: column {name} takes {kind}, and this is {row[name]!r:.80}") from error
        columns[name] = Column(kind, values)
    return columns


def parser(kind: str) -> Callable[[Any], Any]:
    """Converts a value of JSON to one of this type. NULL and NaN become None. Raises ValueError or TypeError for other types."""
    if (element := element_kind(kind)) is not None:
        inner = parser(element)
        return _optional(lambda value: [inner(item) for item in _instance(value, list, tuple, np.ndarray)])
    if integer := _INTEGER.fullmatch(kind):
        bits = int(integer[2])
        low, high = (0, 2**bits) if integer[1] else (-(2 ** (bits - 1)), 2 ** (bits - 1))
        return _optional(lambda value: _integer(value, low, high))
    if decimal := _DECIMAL.fullmatch(kind):
        unit = Decimal(1).scaleb(-int(decimal[2]))
        return _optional(lambda value: _decimal(value).quantize(unit, ROUND_HALF_EVEN, _WIDE))
    if timestamp := _TIMESTAMP.fullmatch(kind):
        instants: Any = np.dtype(f"datetime64[{timestamp[1]}]").type
        return _optional(lambda value: instants(_instant(value), timestamp[1]))
    if kind not in _PARSERS:
        raise TypeError(f"columns of {kind} cannot be read")
    return _optional(_PARSERS[kind])


def element_kind(kind: str) -> str | None:
    """The type of a list's elements; None for other types."""
    match = _LIST.fullmatch(kind)
    return match[1] if match else None


def _optional(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None or (isinstance(value, float) and math.isnan(value)) else parse(value)


def _instance(value: Any, *types: type) -> Any:
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise TypeError(f"{value!r:.80} is no {types[0].__name__}")
    return value


def _integer(value: Any, low: int, high: int) -> int:
    number = int(_instance(value, int, float, np.integer, np.floating))
    if number != value or not low <= number < high:
        raise ValueError(f"{value} is not within {low} and {high - 1}")
    return number


def _decimal(value: Any) -> Decimal:
    return Decimal(_instance(value, str, int, float, Decimal))


def _instant(value: Any) -> Any:
    """ISO 8601, in UTC if it has a zone."""
    return value.replace("Z", "").replace("+00:00", "") if isinstance(value, str) else value


def _float(value: Any) -> float:
    return float(_instance(value, float, int, np.floating, np.integer))


def _bytes(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    try:
        return base64.b64decode(_instance(value, str), validate=True)
    except binascii.Error as error:
        raise ValueError("it is not base64") from error


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "bool": lambda value: bool(_instance(value, bool, np.bool_)),
    "double": _float,
    "float": lambda value: float(np.float32(_float(value))),
    "halffloat": lambda value: float(np.float16(_float(value))),
    "string": lambda value: _instance(value, str),
    "large_string": lambda value: _instance(value, str),
    "binary": _bytes,
    "large_binary": _bytes,
    "date32[day]": lambda value: np.datetime64(_instant(value), "D"),
}


def is_null(column: Column) -> np.ndarray:
    """Bool of shape (rows,)."""
    return np.array([value is None for value in column.values], bool)


def float_values(column: Column) -> np.ndarray:
    """Float64 of shape (rows,), NaN for NULL, without −0."""
    values = np.array([np.nan if value is None else float(value) for value in column.values], np.float64)
    return values + 0.0


def texts(column: Column) -> list[str | None]:
    """Each value as Arrow writes it."""
    write = _TEXTS.get(column.kind, str)
    if timestamp := _TIMESTAMP.fullmatch(column.kind):
        zone = "Z" if timestamp[2] else ""
        return [None if value is None else str(value).replace("T", " ") + zone for value in column.values]
    return [None if value is None else write(value) for value in column.values]


def _float_text(value: float, single: bool) -> str:
    """The shortest digits that give the same number: `1`, `0.000001`, `1e-7`, `1e+10`."""
    value += 0.0
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    digits, exponent = np.format_float_scientific(np.float32(value) if single else value, trim="-").split("e")
    place = int(exponent)
    if not -6 <= place < 10:
        return f"{digits}e{place:+d}" if place > 0 else f"{digits}e{place}"
    return np.format_float_positional(np.float32(value) if single else value, trim="-")


_TEXTS: dict[str, Callable[[Any], str]] = {
    "bool": lambda value: "true" if value else "false",
    "double": lambda value: _float_text(value, single=False),
    "float": lambda value: _float_text(value, single=True),
    "halffloat": lambda value: _float_text(value, single=True),
}
