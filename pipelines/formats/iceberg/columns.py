"""Types of Iceberg's columns, in Arrow and in Spark."""

from collections.abc import Iterator

import pyarrow as pa
from pyiceberg import types as I
from pyiceberg.schema import Schema

from pipelines.data.sources.spark_sql import quote_name
from pipelines.errors import SourceError

_PRIMITIVES: dict[type[I.IcebergType], tuple[pa.DataType, str]] = {
    I.BooleanType: (pa.bool_(), "boolean"),
    I.IntegerType: (pa.int32(), "int"),
    I.LongType: (pa.int64(), "bigint"),
    I.FloatType: (pa.float32(), "float"),
    I.DoubleType: (pa.float64(), "double"),
    I.DateType: (pa.date32(), "date"),
    I.TimeType: (pa.string(), "string"),
    I.TimestampType: (pa.timestamp("us"), "timestamp_ntz"),
    I.TimestamptzType: (pa.timestamp("us", "UTC"), "timestamp"),
    I.TimestampNanoType: (pa.timestamp("us"), "timestamp_ntz"),
    I.TimestamptzNanoType: (pa.timestamp("us", "UTC"), "timestamp"),
    I.StringType: (pa.string(), "string"),
    I.UUIDType: (pa.string(), "string"),
    I.BinaryType: (pa.binary(), "binary"),
    I.FixedType: (pa.binary(), "binary"),
    I.UnknownType: (pa.string(), "string"),
    I.GeometryType: (pa.binary(), "binary"),
    I.GeographyType: (pa.binary(), "binary"),
}
"""In Arrow and in Spark's DDL. Times of day and UUIDs become text, geometries their WKB; all of the unknown type is NULL."""
NANOSECONDS = (I.TimestampNanoType, I.TimestamptzNanoType)
"""Rounded down to microseconds, as Spark has no smaller ones."""


def arrow_type(kind: I.IcebergType) -> pa.DataType:
    """The type in which rows are handed to Spark."""
    match kind:
        case I.StructType():
            return pa.struct([pa.field(field.name, arrow_type(field.field_type)) for field in kind.fields])
        case I.ListType():
            return pa.list_(pa.field("element", arrow_type(kind.element_type)))
        case I.MapType():
            return pa.map_(arrow_type(kind.key_type), arrow_type(kind.value_type))
        case I.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
    return _PRIMITIVES[type(kind)][0]


def row_schema(schema: Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, arrow_type(field.field_type)) for field in schema.fields])


def spark_type(kind: I.IcebergType) -> str:
    """The type in Spark's DDL."""
    match kind:
        case I.StructType():
            return f"struct<{', '.join(f'{quote_name(field.name)}: {spark_type(field.field_type)}' for field in kind.fields)}>"
        case I.ListType():
            return f"array<{spark_type(kind.element_type)}>"
        case I.MapType():
            return f"map<{spark_type(kind.key_type)}, {spark_type(kind.value_type)}>"
        case I.DecimalType():
            return f"decimal({kind.precision}, {kind.scale})"
    return _PRIMITIVES[type(kind)][1]


def spark_ddl(schema: Schema) -> str:
    """The columns as Spark's DDL."""
    return ", ".join(f"{quote_name(field.name)} {spark_type(field.field_type)}" for field in schema.fields)


def check_letter_case(schema: Schema, place: str) -> None:
    """Raises SourceError for columns that Spark takes for one."""
    by_name: dict[str, list[str]] = {}
    for field in schema.fields:
        by_name.setdefault(field.name.lower(), []).append(field.name)
    if alike := next((names for names in by_name.values() if len(names) > 1), None):
        raise SourceError(
            f"{place}: columns {' and '.join(alike)} are one to Spark, which ignores case; rename one in the table, and name a snapshot "
            "that was made since"
        )


def field_path(fields: tuple[I.NestedField, ...], field_id: int) -> tuple[I.NestedField, ...]:
    """The fields that lead to one inside structs, from the outermost; empty if there is none of this ID."""
    for field in fields:
        if field.field_id == field_id:
            return (field,)
        if isinstance(field.field_type, I.StructType) and (inner := field_path(field.field_type.fields, field_id)):
            return (field, *inner)
    return ()


def field_ids(field: I.NestedField) -> Iterator[int]:
    """The IDs of a field and of all fields inside it."""
    yield field.field_id
    match field.field_type:
        case I.StructType(fields=fields):
            for inner in fields:
                yield from field_ids(inner)
        case I.ListType(element_field=element):
            yield from field_ids(element)
        case I.MapType(key_field=key, value_field=value):
            yield from field_ids(key)
            yield from field_ids(value)
