"""Makes a table's columns of those of a data file, which its fields' IDs connect: names, order and types may have changed since it was
written, and fields come or go.

A field that the file lacks has the value of the file's partition, or else its initial default, or else NULL.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as I
from pyiceberg.table.name_mapping import MappedField, NameMapping

from pipelines.errors import SourceError
from pipelines.formats.iceberg.columns import NANOSECONDS, arrow_type

_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True)
class FileField:
    """A field of a data file."""

    name: str
    field_id: int | None
    inner: tuple["FileField", ...]
    """Those of a struct, the element of a list, or key and value of a map."""

    def ids(self) -> Iterator[int]:
        """The IDs of the field and of all fields inside it."""
        if self.field_id is not None:
            yield self.field_id
        for field in self.inner:
            yield from field.ids()


@dataclass(frozen=True)
class Projection:
    """Makes columns of the batches of one data file."""

    path: str
    """For messages."""
    constants: Mapping[int, Any]
    """Values of the file's partition by field ID, of fields that are partitioned by their identity."""

    def column(self, field: I.NestedField, sources: Sequence[FileField], arrays: Sequence[pa.Array], rows: int) -> pa.Array:
        """The table's `field`, of the `arrays` of a file's fields `sources`. Raises SourceError if the file cannot have such a field."""
        place = next((place for place, source in enumerate(sources) if source.field_id == field.field_id), None)
        if place is None:
            return self._absent(field, rows)
        return self._convert(arrays[place], sources[place], field)

    def _absent(self, field: I.NestedField, rows: int) -> pa.Array:
        if field.field_id not in self.constants and field.initial_default is None and field.required:
            raise SourceError(
                f"{self.path} has no column {field.name} (field {field.field_id}), which the table's schema requires and gives no default; "
                "restore the file, or name a snapshot of before the column was required"
            )
        value = self.constants.get(field.field_id, field.initial_default)
        return pa.nulls(rows, arrow_type(field.field_type)) if value is None else pa.repeat(_constant(value, field.field_type), rows)

    def _convert(self, values: pa.Array, source: FileField, field: I.NestedField) -> pa.Array:
        kind, rows = field.field_type, len(values)
        if isinstance(kind, I.StructType) and pa.types.is_struct(values.type):
            inner = [values.field(place) for place in range(values.type.num_fields)]
            arrays = [self.column(child, source.inner, inner, rows) for child in kind.fields]
            mask = values.is_null() if values.null_count else None
            if not arrays:
                return pa.array([None if is_null else {} for is_null in values.is_null().to_pylist()], pa.struct([]))
            return pa.StructArray.from_arrays(arrays, fields=list(arrow_type(kind)), mask=mask)
        if isinstance(kind, I.MapType) and pa.types.is_map(values.type):
            keys = self._convert(values.keys, source.inner[0], kind.key_field)
            items = self._convert(values.items, source.inner[1], kind.value_field)
            return pa.MapArray.from_arrays(_offsets(values), keys, items, type=arrow_type(kind), mask=_mask(values))
        if isinstance(kind, I.ListType) and _is_list(values.type):
            if pa.types.is_fixed_size_list(values.type):
                values = values.cast(pa.list_(values.type.value_field))
            elements = self._convert(values.values, source.inner[0], kind.element_field)
            return pa.ListArray.from_arrays(_offsets(values), elements, type=arrow_type(kind), mask=_mask(values))
        return self._cast(values, field)

    def _cast(self, values: pa.Array, field: I.NestedField) -> pa.Array:
        """Values of a type that is not nested, in the type of the field."""
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if isinstance(values, pa.ExtensionArray):
            values = values.storage
        kind = field.field_type
        if isinstance(kind, I.UnknownType) or pa.types.is_null(values.type):
            return pa.nulls(len(values), arrow_type(kind))
        try:
            if not _becomes(values.type, kind):
                raise ValueError(f"{values.type} does not become {kind}")
            if isinstance(kind, I.UUIDType):
                return _uuid_texts(values)
            if pa.types.is_timestamp(values.type) and values.type.unit == "ns":
                values = pc.floor_temporal(values, unit="microsecond")
            return values.cast(arrow_type(kind))
        except (pa.ArrowException, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise SourceError(
                f"{self.path}: column {field.name} (field {field.field_id}) has other values than the table's schema says: {reason}; write "
                "the file again, or remove it from the table"
            ) from error


def file_fields(schema: pa.Schema, mapping: NameMapping | None, path: str) -> tuple[FileField, ...]:
    """The fields of a Parquet file with their IDs; those of the table's name mapping, if the file has none. Raises SourceError if neither
    has any."""
    fields = tuple(_file_field(field) for field in schema)
    if any(True for field in fields for _ in field.ids()):
        return fields
    if mapping is None:
        raise SourceError(
            f"{path} has no field IDs, and the table no name mapping, so nothing says which column is which; set the table's property "
            "schema.name-mapping.default, as pyiceberg's add_files does"
        )
    return tuple(_map_ids(field, list(mapping)) for field in fields)


def _file_field(field: pa.Field) -> FileField:
    number = (field.metadata or {}).get(_FIELD_ID)
    kind = field.type
    inner: list[pa.Field] = []
    if pa.types.is_struct(kind):
        inner = [kind.field(place) for place in range(kind.num_fields)]
    elif pa.types.is_map(kind):
        inner = [kind.key_field, kind.item_field]
    elif _is_list(kind):
        inner = [kind.value_field]
    return FileField(field.name, None if number is None else int(number), tuple(map(_file_field, inner)))


def _map_ids(field: FileField, mapped: Sequence[MappedField], name: str = "") -> FileField:
    match = next((entry for entry in mapped if (name or field.name) in entry.names), None)
    if match is None:
        return field
    inner_names = {inner_name for entry in match.fields for inner_name in entry.names}
    # Elements, keys and values have fixed names in a mapping, and any in a file.
    names = (
        ("element",)
        if inner_names == {"element"} and len(field.inner) == 1
        else ("key", "value")
        if inner_names == {"key", "value"}
        else ()
    )
    inner = [_map_ids(child, match.fields, names[place] if names else "") for place, child in enumerate(field.inner)]
    return FileField(field.name, match.field_id, tuple(inner))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _offsets(values: pa.Array) -> pa.Array:
    """Where each list begins and ends among the elements, in an array of its own: with a mask, Arrow takes no slice."""
    return pa.array(values.offsets.to_numpy().astype(np.int32))


def _mask(values: pa.Array) -> pa.Array | None:
    return values.is_null() if values.null_count else None


def _becomes(source: pa.DataType, kind: I.IcebergType) -> bool:
    """Whether values in a file are of the type, or of one that Iceberg promotes to it."""
    match kind:
        case I.BooleanType():
            return bool(pa.types.is_boolean(source))
        case I.IntegerType() | I.LongType():
            return bool(pa.types.is_integer(source))
        case I.FloatType() | I.DoubleType():
            return bool(pa.types.is_floating(source) and source.bit_width <= (32 if isinstance(kind, I.FloatType) else 64))
        case I.DecimalType():
            return bool(pa.types.is_decimal(source) and source.scale == kind.scale)
        case I.DateType():
            return bool(pa.types.is_date32(source))
        case I.TimeType():
            return bool(pa.types.is_time(source))
        case I.TimestampType() | I.TimestamptzType() | I.TimestampNanoType() | I.TimestamptzNanoType():
            return bool(pa.types.is_timestamp(source) or pa.types.is_date32(source))
        case I.UUIDType():
            return bool(pa.types.is_fixed_size_binary(source) and source.byte_width == 16)
    return any(is_kind(source) for is_kind in (_is_text, pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _uuid_texts(values: pa.Array) -> pa.Array:
    """UUIDs as they are written: 8, 4, 4, 4 and 12 hexadecimal digits."""
    hexadecimal = [None if value is None else value.hex() for value in values.to_pylist()]
    parts = [None if text is None else "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])) for text in hexadecimal]
    return pa.array(parts, pa.string())


def _constant(value: Any, kind: I.IcebergType) -> pa.Scalar:
    """A default, or a partition's value as Avro has it: dates and times may be numbers."""
    if isinstance(kind, I.UUIDType):
        return pa.scalar(str(value))
    stored: dict[type[I.IcebergType], pa.DataType] = {
        I.TimeType: pa.time64("us"),
        I.TimestampNanoType: pa.timestamp("ns"),
        I.TimestamptzNanoType: pa.timestamp("ns", "UTC"),
    }
    values = pa.array([value], stored.get(type(kind), arrow_type(kind)))
    if isinstance(kind, NANOSECONDS):
        values = pc.floor_temporal(values, unit="microsecond")
    return values.cast(arrow_type(kind))[0]
