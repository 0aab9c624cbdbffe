"""Files that know the types of their columns: the interface of their readers, which need no Spark, and what Arrow's types become in Spark.

Spark has no unsigned numbers, no nanoseconds and no times of day. Each value is kept exactly, in a wider type or as text, but nanoseconds
are rounded down to microseconds, as in Parquet. Dates and times outside of the years 1 to 9999 are faults of their rows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.errors import SourceError

_MOST_DIGITS = 38
"""Of a decimal of Spark."""
_UNSIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}
_FIRST, _LAST = date(1, 1, 1), date(9999, 12, 31)


class ArrowReader(Protocol):
    """Reads files of one format; it travels to Spark's tasks by pickle."""

    def schema(self, path: str) -> pa.Schema:
        """The columns of a file, in Arrow's types. Raises SourceError if it cannot be read."""

    def batches(self, path: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows, with the columns of these names in their order."""


def spark_kind(kind: pa.DataType) -> pa.DataType | None:
    """The type that Spark has in place of Arrow's; None if it has none for it."""
    match kind:
        case pa.ExtensionType() | pa.BaseExtensionType():
            return pa.string() if str(kind) == "extension<arrow.uuid>" else spark_kind(kind.storage_type)
        case pa.DictionaryType():
            return spark_kind(kind.value_type)
        case pa.StructType():
            fields = [(field.name, spark_kind(field.type)) for field in kind]
            return pa.struct(fields) if all(inner is not None for _, inner in fields) else None
        case pa.MapType():
            key, item = spark_kind(kind.key_type), spark_kind(kind.item_type)
            return pa.map_(key, item) if key and item else None
    if kind in _UNSIGNED:
        return _UNSIGNED[kind]
    if is_list(kind):
        element = spark_kind(kind.value_type)
        return pa.list_(element) if element else None
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale) if kind.precision <= _MOST_DIGITS and kind.scale >= 0 else None
    tests: Sequence[tuple[Callable[[pa.DataType], bool], pa.DataType]] = (
        (pa.types.is_date, pa.date32()), (is_text, pa.string()), (pa.types.is_time, pa.string()), (pa.types.is_null, pa.string()),
        (is_bytes, pa.binary()), (pa.types.is_float16, pa.float32()),
    )  # fmt: skip
    plain = pa.types.is_signed_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return next((other for test, other in tests if test(kind)), kind if plain else None)


def is_list(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_list_view))


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
    return any(test(kind) for test in tests)


@dataclass(frozen=True)
class Converted:
    """A column in a type of Spark."""

    values: pa.Array
    """NULL where there is a fault."""
    is_faulty: pa.Array | None = None
    """Of dates and times: whether a value is outside of the years that they may have."""


def convert_array(array: pa.Array, place: str) -> Converted:
    """The column in its type of Spark. Raises SourceError if a value has no place there, or if texts are not UTF-8."""
    kind = spark_kind(array.type)
    if kind is None:
        raise SourceError(
            f"{place} is {array.type}, which Spark does not have; give the table a schema of the other columns, or write it as another"
        )
    try:
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            return _convert_moments(array, kind)
        converted = _convert(array, kind)
        converted.validate(full=True)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise SourceError(f"{place} cannot be read as {kind}: {' '.join(str(error).split())[:300]}; correct it in the file") from error
    return Converted(converted)


def _convert(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        is_id = str(array.type) == "extension<arrow.uuid>"
        return pa.array([value and str(value) for value in array.to_pylist()], pa.string()) if is_id else _convert(array.storage, kind)
    if isinstance(array, pa.DictionaryArray):
        return _convert(array.dictionary_decode(), kind)
    if is_list(array.type):
        # Arrow casts a fixed size only to lists of the same elements.
        plain = array.cast(pa.list_(array.type.value_type)) if not pa.types.is_list(array.type) else array
        start, stop = plain.offsets[0].as_py(), plain.offsets[len(plain)].as_py()
        inner = _convert(plain.values.slice(start, stop - start), kind.value_type)
        offsets = pc.subtract(plain.offsets, pa.scalar(start, plain.offsets.type))
        return pa.ListArray.from_arrays(offsets, inner, mask=plain.is_null())
    if pa.types.is_struct(array.type):
        inner = [_convert(field, kind.field(number).type) for number, field in enumerate(array.flatten())]
        return pa.StructArray.from_arrays(inner, fields=list(kind), mask=array.is_null())
    if pa.types.is_map(array.type) or pa.types.is_float16(array.type):
        return pa.array(array.to_pylist(), kind)
    if pa.types.is_timestamp(array.type) and pa.types.is_timestamp(kind):
        return _floor(array).cast(kind)
    return array.cast(kind)


def _convert_moments(array: pa.Array, kind: pa.DataType) -> Converted:
    first, last = _FIRST, _LAST
    if pa.types.is_timestamp(kind):
        zone = UTC if kind.tz else None
        first, last = datetime(1, 1, 1, tzinfo=zone), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=zone)
    # Compared before they are converted: seconds and days may be greater than any number of microseconds.
    unit = array.type if pa.types.is_timestamp(array.type) else pa.date32()
    plain = array if pa.types.is_timestamp(array.type) else array.cast(pa.date32())
    if pa.types.is_timestamp(unit) and unit.unit == "ns":  # which begin in 1677 and end in 2262
        return Converted(_floor(array).cast(kind))
    low, high = (pa.scalar(end, unit) if not pa.types.is_timestamp(unit) else _scalar(end, unit) for end in (first, last))
    is_faulty = pc.fill_null(pc.or_(pc.less(plain, low), pc.greater(plain, high)), False)
    sound = pc.if_else(is_faulty, pa.scalar(None, plain.type), plain)
    return Converted(sound.cast(kind), is_faulty)


def _scalar(moment: Any, unit: pa.DataType) -> pa.Scalar:
    return pa.scalar(moment, pa.timestamp("us", unit.tz)).cast(unit, safe=False)


def _floor(array: pa.Array) -> pa.Array:
    """Timestamps in microseconds, rounded down."""
    if array.type.unit != "ns":
        return array.cast(pa.timestamp("us", array.type.tz))
    nanoseconds = array.cast(pa.int64())
    floored = pc.divide(pc.subtract(nanoseconds, pc.if_else(pc.less(nanoseconds, 0), 999, 0)), 1_000)
    return floored.cast(pa.timestamp("us", array.type.tz))
