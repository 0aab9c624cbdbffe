"""Converts the columns of rows to those that a model takes: one rule for every door, batch prediction, HTTP and MLflow.

A column that is missing or of another sort, such as text in place of numbers, is an error of all rows. A value that the model's type
does not have, such as 3,000,000,000 for int32 or 1.5 for an integer, is an error of its row alone, which is refused. A column without a
single value is of no sort: pandas reads an empty one as floats that are all NaN, whatever it stands for.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from pipelines.config.messages.words import name_list
from pipelines.data.features.raw import is_list, is_number
from pipelines.errors import SourceError

_FAULTS = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, UnicodeError)
_UNFIT = " cannot be cast to "
Values = Any
"""A column: a series, a list or an array."""


def to_arrow(rows: pd.DataFrame | Mapping[str, list[Any]], schema: pa.Schema) -> pa.Table:
    """Convert a data frame, or lists of values by column, to a table with this schema. NaN and None become NULL; other columns are ignored.
    Raises SourceError if a column is missing or a value cannot be cast."""
    columns = []
    for field in schema:
        try:
            columns.append(_cast_column(_values(rows, field, schema), field.type))
        except _FAULTS as error:
            raise SourceError(_reason(field, error)) from error
    return pa.Table.from_arrays(columns, schema=schema)


def fitting_rows(rows: pd.DataFrame | Mapping[str, list[Any]] | pa.RecordBatch, schema: pa.Schema) -> tuple[pa.Table, pa.Array]:
    """The rows as `to_arrow` converts them, and for each row the reason why a value cannot be cast, NULL if all can. A value that cannot be
    cast is NULL. Raises SourceError if a column is missing, or all of it is of another sort."""
    reasons: dict[int, str] = {}
    columns = []
    for field in schema:
        values = _values(rows, field, schema)
        try:
            columns.append(_cast_column(values, field.type))
        except _FAULTS as error:
            with suppress(*_FAULTS):  # of a column whose values have several types, or none that Arrow knows
                if _sort(_array(values).type) not in (_sort(field.type), "null"):
                    raise SourceError(_reason(field, error)) from error
            faults: dict[int, str] = {}
            columns.append(pa.concat_arrays(_pieces(values, field, 0, faults)))
            reasons = {**faults, **reasons}
    table = pa.Table.from_arrays(columns, schema=schema)
    return table, pa.array([reasons.get(row) for row in range(len(table))] if reasons else pa.nulls(len(table)), pa.string())


def _pieces(values: Values, field: pa.Field, start: int, faults: dict[int, str]) -> list[pa.Array]:
    """The values, cast in as few pieces as possible: one that cannot be cast is found by halving, and becomes NULL. `faults` get the
    reason by the number of the row, `start` being that of the first."""
    try:
        return [_cast(values, field.type)]
    except _FAULTS as error:
        if len(values) == 1:
            faults[start] = _reason(field, error)
            return [pa.nulls(1, field.type)]
    half = len(values) // 2
    return [*_pieces(values[:half], field, start, faults), *_pieces(values[half:], field, start + half, faults)]


def misfits(inputs: pa.Schema, columns: pa.Schema) -> list[str]:
    """A phrase for each input of a model that rows with these columns lack, or have as another sort of values."""
    phrases = []
    for field in inputs:
        if field.name not in columns.names:
            phrases.append(f"no column {field.name} ({field.type})")
        elif not _is_castable(columns.field(field.name).type, field.type):
            phrases.append(f"{field.name} as {columns.field(field.name).type}, not {field.type}")
    return phrases


def schema_of_values(rows: pa.RecordBatch | pa.Table) -> pa.Schema:
    """The schema of rows, with the type null for columns without a value."""
    return pa.schema([field if _has_values(rows.column(field.name)) else pa.field(field.name, pa.null()) for field in rows.schema])


def _has_values(array: pa.Array | pa.ChunkedArray) -> bool:
    """Whether any value is neither NULL nor NaN."""
    if array.null_count == len(array):
        return False
    return not types.is_floating(array.type) or not pc.all(pc.is_null(array, nan_is_null=True)).as_py()


def _is_castable(kind: pa.DataType, target: pa.DataType) -> bool:
    """Whether values of a type may stand for those of the target, each on condition that the target has it."""
    if kind.equals(target) or types.is_null(kind):
        return True
    if types.is_dictionary(kind):
        return _is_castable(kind.value_type, target)
    return _sort(kind) == _sort(target) == "numbers" and not is_list(kind) and not is_list(target)


def _values(rows: Any, field: pa.Field, schema: pa.Schema) -> Values:
    # `schema.names` would make a list of all names for each of them.
    has_column = bool(rows.schema.get_all_field_indices(field.name)) if isinstance(rows, pa.RecordBatch) else field.name in rows
    if not has_column:
        raise SourceError(f"the rows have no column {field.name}; the model takes {name_list(schema.names)}")
    values: Values = rows.column(field.name) if isinstance(rows, pa.RecordBatch) else rows[field.name]
    if is_list(field.type) and not isinstance(values, pa.Array):  # Arrow accepts one-dimensional arrays or nested lists
        values = [value.tolist() if isinstance(value, np.ndarray) else value for value in values]
    return values


def drop_value(reason: str) -> str:
    """A reason from `fitting_rows` without the value, for counting; any other reason as it is."""
    fault, _, _ = reason.partition(": ")
    return fault if fault.startswith("the values of column ") and _UNFIT in fault else reason


def _reason(field: pa.Field, error: Exception) -> str:
    return f"the values of column {field.name}{_UNFIT}{field.type}: {' '.join(str(error).split())}"


def _array(values: Values) -> pa.Array:
    array = values if isinstance(values, pa.Array) else pa.array(values, from_pandas=True)
    return array.dictionary_decode() if types.is_dictionary(array.type) else array


def _array_for(kind: pa.DataType, values: Values) -> pa.Array:
    """The values as an array. For floats, JSON's 10**30 is what 1e30 is, though Arrow has no integer of that size."""
    try:
        return _array(values)
    except _FAULTS:
        if types.is_floating(element_type(kind)):
            with suppress(*_FAULTS):
                return _array(_as_floats(list(values)))
        raise


def _as_floats(value: Any) -> Any:
    """Integers as floats, in lists at any depth; all else as it is."""
    if isinstance(value, list):
        return [_as_floats(inner) for inner in value]
    return float(value) if type(value) is int else value


def _cast_column(values: Values, kind: pa.DataType) -> pa.Array:
    """Cast a whole column: one without a value is NULL of any type."""
    array = _array_for(kind, values)
    return _cast(array, kind) if _has_values(array) else pa.nulls(len(array), kind)


def _cast(values: Values, kind: pa.DataType) -> pa.Array:
    """Cast values to a type of the same sort: integers may be cast to other numbers, but text and booleans may not."""
    array = _array_for(kind, values)
    if array.type.equals(kind):
        return array
    if _sort(array.type) not in (_sort(kind), "null"):
        raise pa.ArrowTypeError(f"they are {array.type}")
    if types.is_integer(array.type) and types.is_decimal(kind):
        array = array.cast(pa.decimal128(38, kind.scale))  # Arrow requires a precision for all values of the type
    if types.is_decimal(array.type) and types.is_decimal(kind):  # as Spark's CAST; an unsafe one would truncate, and overflow unseen
        array = pc.round(array.cast(pa.decimal256(76, array.type.scale)), kind.scale, "half_towards_infinity")
    # Times arrive in nanoseconds, and numbers for floats are rounded; of float64 Arrow rounds decimals by itself. All else is exact.
    rounds = _sort(kind) == "times" or types.is_floating(element_type(kind))
    return array.cast(kind, safe=not rounds)


def element_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values in a list, or in lists within it; any other type as it is."""
    return element_type(kind.value_type) if is_list(kind) else kind


def _sort(kind: pa.DataType) -> str:
    if is_list(kind):
        return _sort(kind.value_type)
    if types.is_boolean(kind):
        return "booleans"
    return "numbers" if is_number(kind) else "times" if types.is_temporal(kind) else "null" if types.is_null(kind) else "text or bytes"


def insert_refused_rows(predicted: pa.RecordBatch, reasons: pa.Array, refused: str) -> pa.RecordBatch:
    """The predictions of the rows without a reason, and between them rows of NULL with the reasons in the column `refused`."""
    if reasons.null_count == len(reasons):
        return predicted
    is_accepted = pc.is_null(reasons).to_numpy(zero_copy_only=False)
    spread = predicted.take(pa.array(np.cumsum(is_accepted) - 1, pa.int64(), mask=~is_accepted))
    position = spread.schema.get_field_index(refused)
    return spread.set_column(position, spread.schema.field(position), pc.coalesce(reasons, spread.column(position)))
