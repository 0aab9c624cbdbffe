"""Tensor columns: a fixed dtype and shape per row, as Arrow fields and as NumPy arrays.

Scalars are plain Parquet columns that every tool reads. Anything larger is a fixed-size binary column, little-endian
and in C order, with dtype and shape in the field's metadata: it decodes five times as fast as a Parquet list.
"""

from base64 import b64decode, b64encode
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import pyarrow as pa

from pipelines.errors import ConfigError, DatasetError

Dtype = Literal["float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "float16"]
Role = Literal["feature", "target", "carried"]
"""What a column is to the model, which does not see those that are `carried`."""

ROW_NUMBERS = "row_number"
"""Key of a batch's optional row numbers within the split, int64 of shape (rows,)."""
ROW_KEYS = "row_key"
"""Key of a batch's optional 64-bit numbers, int64 of shape (rows,), from which tasks draw a row's random numbers. A row's number is a
pure function of (seed, epoch, row)."""

FREE, UNKNOWN, FIRST = range(3)
"""Indices in a column of words: padding, a word outside the vocabulary, the most frequent word."""
END = 0
"""Index in a packed column: the end of a document."""


@dataclass(frozen=True)
class TensorColumn:
    """One column of every batch. It is no section of pydantic's, for encoders also run in exported folders, which are without it. Raises
    ConfigError for a dtype that no column has."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}
    """Of a column in a manifest, which is a section."""

    name: str
    dtype: Dtype
    shape: tuple[int, ...] = ()
    """Per row."""
    role: Role = "feature"
    cardinality: int | None = None
    """Of a column of indices: their exclusive upper bound. None for quantities."""
    counted: bool = False
    """Whether each index is followed by its count, in a last dimension of 2; 0 and 0 are free."""
    missing: bool = False
    """Whether NaN stands for a value that is not there."""

    def __post_init__(self) -> None:
        if self.dtype not in get_args(Dtype):
            raise ConfigError(f"column {self.name} is {self.dtype}; a tensor column is one of {', '.join(get_args(Dtype))}")

    def to_values(self) -> dict[str, Any]:
        """The column as a manifest has it, in JSON: `counted` and `missing` only where they are true."""
        values = {"name": self.name, "dtype": self.dtype, "shape": list(self.shape), "role": self.role, "cardinality": self.cardinality}
        return values | {name: True for name in ("counted", "missing") if getattr(self, name)}

    @property
    def row_bytes(self) -> int:
        return np.dtype(self.dtype).itemsize * prod(self.shape)

    @property
    def field(self) -> pa.Field:
        """The Arrow field, not nullable."""
        metadata = {"dtype": self.dtype, "shape": ",".join(map(str, self.shape))} if self.shape else None
        return pa.field(self.name, _arrow_type(self.dtype, self.shape), nullable=False, metadata=metadata)


@cache
def _arrow_type(dtype: str, shape: tuple[int, ...]) -> pa.DataType:
    numbers = np.dtype(dtype)
    return pa.binary(numbers.itemsize * prod(shape)) if shape else pa.from_numpy_dtype(numbers)


def arrow_schema(columns: tuple[TensorColumn, ...]) -> pa.Schema:
    return pa.schema([column.field for column in columns])


def to_numpy(column: TensorColumn, values: pa.Array) -> np.ndarray:
    """The values as an array of shape (rows, *column.shape), without a copy. Raises DatasetError if the values have another type than the
    column, or NULLs."""
    if values.type != (expected_type := _arrow_type(column.dtype, column.shape)):
        raise DatasetError(f"column {column.name} is {values.type}; the manifest says {expected_type}")
    if values.null_count:
        raise DatasetError(f"column {column.name} has {values.null_count} NULLs; a tensor column has none")
    if not column.shape:
        return np.from_dlpack(values)  # Arrow's own to_numpy imports pandas at its first call, which takes 0.3 s
    flat = np.frombuffer(
        values.buffers()[1], np.dtype(column.dtype), count=len(values) * prod(column.shape), offset=values.offset * column.row_bytes
    )
    return flat.reshape(len(values), *column.shape)


def from_numpy(column: TensorColumn, values: np.ndarray) -> pa.Array:
    """An array of shape (rows, *column.shape) as the column's Arrow array."""
    values = np.ascontiguousarray(values, dtype=column.dtype)
    if values.shape[1:] != column.shape:
        raise DatasetError(f"column {column.name} has shape {values.shape[1:]} per row; it must be {column.shape}")
    if not column.shape:
        return pa.array(values)
    return pa.FixedSizeBinaryArray.from_buffers(column.field.type, len(values), [None, pa.py_buffer(values)])


def schema_to_text(schema: pa.Schema) -> str:
    """An Arrow schema as base64 of its IPC message: exact for every type, and valid in JSON."""
    return b64encode(schema.remove_metadata().serialize()).decode()


def schema_from_text(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(b64decode(text)))
