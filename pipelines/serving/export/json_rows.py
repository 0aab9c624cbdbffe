"""Raw rows in JSON, as exported folders read them: bytes are base64, times ISO 8601, decimals text, and null is a missing value."""

import base64
import binascii
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types

from pipelines.data.features.arrays import is_bytes
from pipelines.data.features.raw import is_list, is_text

_WIDE = Context(prec=80)
_FAULTS = (ValueError, TypeError, ArithmeticError, NotImplementedError)
"""What Python and Arrow raise for a value of another type."""
_FLOATS: dict[int, Any] = {16: np.float16, 32: np.float32, 64: np.float64}
Read = Callable[[Any], Any]


def rows_from_json(rows: Sequence[Mapping[str, Any]], schema: pa.Schema, first: int = 0) -> pa.Table:
    """The columns of `schema`. Raises ValueError if a row lacks a column, or has a value of another type; `first` is the number of the
    first row there."""
    for number, row in enumerate(rows, first):
        if not isinstance(row, Mapping):
            raise ValueError(f"row {number} is {row!r:.80}, and a row is a JSON object")
        if missing := next((name for name in schema.names if name not in row), None):
            raise ValueError(f"row {number} has no column {missing}; a row has {', '.join(schema.names)}, with null for what is missing")
    return pa.Table.from_arrays([_column([row[field.name] for row in rows], field, first) for field in schema], schema=schema)


def _column(values: Sequence[Any], field: pa.Field, first: int) -> pa.Array:
    read = _reader(field.type)
    try:
        return pa.array([read(value) for value in values], field.type)
    except _FAULTS:
        for number, value in enumerate(values, first):
            try:
                pa.array([read(value)], field.type)
            except _FAULTS as error:
                raise ValueError(f"row {number}: column {field.name} takes {field.type}, and this is {value!r:.80}") from error
        raise


def _reader(kind: pa.DataType) -> Read:
    """Converts a value of JSON to one that Arrow takes for this type; NaN is NULL. Raises an error of `_FAULTS` for other types."""
    read = _value_reader(kind)
    return lambda value: None if value is None or (isinstance(value, float) and math.isnan(value)) else read(value)


def _value_reader(kind: pa.DataType) -> Read:
    if is_list(kind):
        inner = _reader(kind.value_type)
        return lambda value: [inner(item) for item in _instance(value, list, tuple, np.ndarray)]
    if types.is_struct(kind):
        fields = {field.name: _reader(field.type) for field in kind}
        return lambda value: {name: read(_instance(value, dict).get(name)) for name, read in fields.items()}
    if types.is_integer(kind):
        return _whole_number
    if types.is_floating(kind):
        dtype = _FLOATS[kind.bit_width]
        return lambda value: dtype(float(_instance(value, float, int, np.floating, np.integer)))
    if types.is_decimal(kind):
        last_place = Decimal(1).scaleb(-kind.scale)
        return lambda value: Decimal(_instance(value, str, int, float, Decimal)).quantize(last_place, ROUND_HALF_EVEN, _WIDE)
    if types.is_timestamp(kind) or types.is_date(kind):
        unit: Any = kind.unit if types.is_timestamp(kind) else "D" if types.is_date32(kind) else "ms"
        return lambda value: np.datetime64(_instant(value), unit).astype(np.int64).item()
    if is_bytes(kind):
        return _bytes
    of_type = bool if types.is_boolean(kind) else str if is_text(kind) else object
    return lambda value: _instance(value, of_type)


def _instance(value: Any, *classes: type) -> Any:
    if not isinstance(value, classes) or (isinstance(value, bool) and not {bool, object} & {*classes}):
        raise TypeError(f"{value!r:.80} is no {classes[0].__name__}")
    return value


def _whole_number(value: Any) -> int:
    number = int(_instance(value, int, float, np.integer, np.floating))
    if number != value:
        raise ValueError(f"{value} is no whole number")
    return number


def _instant(value: Any) -> Any:
    """ISO 8601, in UTC if it has a zone."""
    return value.replace("Z", "").replace("+00:00", "") if isinstance(value, str) else value


def _bytes(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    try:
        return base64.b64decode(_instance(value, str), validate=True)
    except binascii.Error as error:
        raise ValueError("it is not base64") from error


def rows_to_json(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows that `rows_from_json` reads."""
    return [{name: json_value(value) for name, value in row.items()} for row in rows.to_pylist()]


def json_value(value: Any) -> Any:
    """The value as JSON has it; None for numbers that are not finite."""
    if isinstance(value, (list, np.ndarray)):
        return [json_value(item) for item in value]
    if isinstance(value, np.generic):
        return json_value(value.item())
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
