"""Columns of NumPy's arrays: the first axis is that of the rows, and further axes are lists."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.errors import SourceError

_BATCH_BYTES = 4 * 2**20
_DAYS = ("Y", "M", "W", "D")
"""Units of dates; finer ones are those of times."""
_EXACT_UNITS = ("s", "ms", "us", "ns")


def array_kinds(path: str, arrays: Mapping[str, Any]) -> pa.Schema:
    """The columns of arrays. Raises SourceError for an array without rows' axis, and for a type that no column has."""
    if not arrays:
        raise SourceError(f"{path} has no array; give a file that has some")
    return pa.schema([(name, _kind_of_array(f"{path}: {name}", array.dtype, array.shape)) for name, array in arrays.items()])


def batches_of_arrays(path: str, arrays: Mapping[str, Any], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows, with the columns of these names. Raises SourceError if the arrays differ in their number of rows."""
    lengths = {name: arrays[name].shape[0] for name in names}
    if len(set(lengths.values())) > 1:
        sizes = ", ".join(f"{name} has {length:,}" for name, length in lengths.items())
        raise SourceError(
            f"{path}: arrays of one table have as many rows as each other, but {sizes}; give the table a schema of those that do"
        )
    kinds = array_kinds(path, {name: arrays[name] for name in names})
    rows = next(iter(lengths.values()))
    row_bytes = sum(arrays[name].dtype.itemsize * int(np.prod(arrays[name].shape[1:])) for name in names)
    step = max(1, _BATCH_BYTES // max(row_bytes, 1))
    for start in range(0, rows, step):
        parts = [column_values(np.asarray(arrays[name][start : start + step]), kinds.field(name).type) for name in names]
        yield pa.record_batch(parts, schema=pa.schema([kinds.field(name) for name in names]))


def _kind_of_array(place: str, dtype: np.dtype, shape: Sequence[int]) -> pa.DataType:
    if not shape:
        raise SourceError(f"{place} is a single value without an axis of rows; leave it out by a schema, or save it as an array")
    if dtype.subdtype:
        inner, more = dtype.subdtype
        return _kind_of_array(place, inner, (*shape, *more))
    kind = _scalar_kind(place, dtype)
    for length in reversed(shape[1:]):
        kind = pa.list_(kind, length)
    return kind


def _scalar_kind(place: str, dtype: np.dtype) -> pa.DataType:
    match dtype.kind:
        case "b" | "i" | "u":
            return pa.from_numpy_dtype(dtype.newbyteorder("="))
        case "f" if dtype.itemsize <= 8:
            return pa.from_numpy_dtype(dtype.newbyteorder("="))
        case "U" | "S":
            return pa.string()
        case "M" if np.datetime_data(dtype)[0] in _DAYS:
            return pa.date32()
        case "M" if np.datetime_data(dtype)[0] in _EXACT_UNITS and np.datetime_data(dtype)[1] == 1:
            return pa.timestamp(np.datetime_data(dtype)[0])
    meaning = "Python objects, which are pickles" if dtype.kind == "O" else str(dtype)
    raise SourceError(
        f"{place} is of {meaning}, which no column has; save it as numbers, texts or dates, and complex numbers as two arrays"
    )


def column_values(array: np.ndarray, kind: pa.DataType) -> pa.Array:
    """Rows of an array as a column."""
    if pa.types.is_fixed_size_list(kind):
        # The axes behind the second one become lists of their own.
        flat = array.reshape(len(array) * kind.list_size, *array.shape[2:]) if kind.list_size else array.reshape(0, *array.shape[2:])
        if not kind.list_size:
            return pa.array([[]] * len(array), kind)
        return pa.FixedSizeListArray.from_arrays(column_values(flat, kind.value_type), kind.list_size)
    if array.dtype.kind == "M":
        unit = "D" if pa.types.is_date(kind) else kind.unit
        array = array.astype(f"M8[{unit}]")
        is_missing = np.isnat(array)
        numbers = pa.array(np.where(is_missing, 0, array.astype(np.int64)), mask=is_missing)
        return numbers.cast(pa.int32()).cast(kind) if unit == "D" else numbers.cast(kind)
    if array.dtype.kind in "US":  # bytes are texts here, since NumPy drops zeros at their ends
        return pa.array(array.tolist(), pa.binary() if array.dtype.kind == "S" else kind).cast(kind)
    return pa.array(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")))
