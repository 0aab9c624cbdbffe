"""Gives the columns of a data file the names and types of the table.

A file may be older than the table's schema: it lacks columns, which are NULL then, or has narrower types. With column mapping it knows
columns by physical names or by numbers, which stand in the metadata of the table's fields. What Arrow could convert, but no protocol
allows, is refused: a text is no number."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from pipelines.errors import SourceError

PHYSICAL_NAME, ID = "delta.columnMapping.physicalName", "delta.columnMapping.id"
_FILE_ID = b"PARQUET:field_id"


def file_column(fields: Sequence[pa.Field], field: T.StructField, mapping: str) -> int | None:
    """The position among a file's fields of the column that the table calls `field`; None if the file lacks it. Where the table goes by
    numbers, and the file has none, physical names are right, which the table has as well."""
    ids = [(column.metadata or {}).get(_FILE_ID) for column in fields]
    if mapping == "id" and any(ids):
        number = str(field.metadata.get(ID, "")).encode()
        return ids.index(number) if number in ids else None
    name = field.name if mapping == "none" else field.metadata.get(PHYSICAL_NAME, field.name)
    names = [column.name for column in fields]
    if name in names:
        return names.index(name)
    lower = [other.lower() for other in names]  # Spark, which ignores case, may have written it
    return lower.index(name.lower()) if lower.count(name.lower()) == 1 else None


def to_table_type(array: pa.Array, kind: T.DataType, target: pa.DataType, mapping: str, where: str) -> pa.Array:
    """The array of a file as the Arrow type `target` of a column of the type `kind`. Raises SourceError, about the column `where`, if the
    file has a type that the table cannot have had."""
    source = array.type
    if pa.types.is_null(source):
        return pa.nulls(len(array), target)
    if isinstance(kind, T.StructType) and pa.types.is_struct(source):
        return _struct(array, kind, target, mapping, where)
    if isinstance(kind, T.ArrayType) and _is_list(source):
        offsets, values = _ranges(array, array.values)
        elements = to_table_type(values, kind.elementType, target.value_type, mapping, f"{where}.element")
        return pa.ListArray.from_arrays(offsets, elements, type=target, mask=array.is_null())
    if isinstance(kind, T.MapType) and pa.types.is_map(source):
        offsets, keys = _ranges(array, array.keys)
        keys = to_table_type(keys, kind.keyType, target.key_type, mapping, f"{where}.key")
        items = to_table_type(_ranges(array, array.items)[1], kind.valueType, target.item_type, mapping, f"{where}.value")
        return pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=array.is_null())
    if source != target and not _is_earlier(source, target):
        raise SourceError(f"column {where} is {source}, and {kind.simpleString()} in the table; write the file again with the table's type")
    return array.cast(target)


def _struct(array: pa.Array, kind: T.StructType, target: pa.DataType, mapping: str, where: str) -> pa.Array:
    fields = list(array.type)
    children = []
    for field, target_field in zip(kind, target, strict=True):
        place = file_column(fields, field, mapping)
        if place is None:
            children.append(pa.nulls(len(array), target_field.type))
        else:
            children.append(to_table_type(array.field(place), field.dataType, target_field.type, mapping, f"{where}.{field.name}"))
    return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())


def _ranges(array: pa.Array, values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The offsets of lists or maps from 0, and the values that they divide: an array may be a part of a longer one."""
    offsets = array.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    return pc.subtract(offsets, offsets[0]).cast(pa.int32()), values.slice(first, last - first)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_earlier(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a file may have this type where the table has `target` by now, or Arrow names that type so."""
    if pa.types.is_dictionary(source):
        source = source.value_type
    is_text = pa.types.is_string(source) or pa.types.is_large_string(source) or pa.types.is_string_view(source)
    is_binary = pa.types.is_binary(source) or pa.types.is_large_binary(source) or pa.types.is_binary_view(source)
    is_binary |= pa.types.is_fixed_size_binary(source) and not pa.types.is_decimal(source)
    if pa.types.is_string(target) or pa.types.is_binary(target):  # old writers mark no text as such
        return is_text if pa.types.is_string(target) and is_text else is_binary
    if pa.types.is_integer(target):
        return bool(pa.types.is_integer(source))
    if pa.types.is_floating(target):
        is_narrow = pa.types.is_integer(source) and source.bit_width <= 32 and target.bit_width == 64
        return is_narrow or (pa.types.is_floating(source) and source.bit_width <= target.bit_width)
    if pa.types.is_decimal(target):
        is_decimal = pa.types.is_decimal(source) and source.scale <= target.scale
        return is_decimal or bool(pa.types.is_integer(source))
    if pa.types.is_timestamp(target):
        return bool(pa.types.is_timestamp(source) or (pa.types.is_date(source) and target.tz is None))
    return bool(source == target or (pa.types.is_date(source) and pa.types.is_date(target)))


def rows_to_keep(deleted: np.ndarray | None, first: int, count: int) -> pa.Array | None:
    """The mask of the rows [first, first + count) of a file that are not deleted; None if all remain."""
    if deleted is None:
        return None
    inside = deleted[np.searchsorted(deleted, first) : np.searchsorted(deleted, first + count)]
    if not len(inside):
        return None
    keep = np.ones(count, bool)
    keep[inside - first] = False
    return pa.array(keep)
