"""A hash of the rows of a data frame that does not depend on their order, computed by Spark.

Each row has two hashes of 64 bits, xxHash with and without a value before the columns, and the digest is that of the columns, the number
of rows and the two sums. Two equal rows count twice, as an exclusive or would not have them. A source that is altered by chance keeps both
sums with a probability of about 2^-128; nobody is kept from choosing rows that do, so it is no protection against forgery.

Spark's xxHash passes over NULLs, and has no maps. So each value comes with whether it is NULL, each array with its length, and maps as
arrays in the order of their keys."""

from hashlib import sha256

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pipelines.data.sources.spark_sql import quote_name

_SECOND = "second"
"""Stands before the columns for the second hash."""


def hash_frame(rows: DataFrame) -> tuple[int, str]:
    """The number of rows, and the SHA-256 of the columns with the sums of the rows' hashes, in hex."""
    values = [part for field in rows.schema for part in hashable_parts(F.col(quote_name(field.name)), field.dataType)]
    hashes = [F.xxhash64(F.lit(len(values)), *values), F.xxhash64(F.lit(_SECOND), *values)]
    sums = [F.coalesce(F.sum(value.cast("decimal(38,0)")), F.lit(0)).cast("string") for value in hashes]
    row = rows.agg(F.count(F.lit(1)), *sums).first()
    assert row is not None, "an aggregate has a row"
    text = f"{rows.schema.simpleString()}\n{row[0]}\n{row[1]}\n{row[2]}"
    return int(row[0]), sha256(text.encode()).hexdigest()


def hashable_parts(value: Column, kind: T.DataType) -> list[Column]:
    """Whether the value is NULL, and a form of it that differs wherever values differ and that xxHash takes."""
    return [value.isNull(), _hashable(value, kind)]


def _hashable(value: Column, kind: T.DataType) -> Column:
    match kind:
        case T.StructType():
            fields = [hashable_parts(value.getField(field.name), field.dataType) for field in kind]
            return F.struct(*[part for parts in fields for part in parts]) if fields else F.lit(0)
        case T.ArrayType():
            return F.struct(F.size(value), F.transform(value, lambda element: F.struct(*hashable_parts(element, kind.elementType))))
        case T.MapType():
            entry = T.StructType([T.StructField("key", kind.keyType), T.StructField("value", kind.valueType)])
            return _hashable(F.array_sort(F.map_entries(value), _compare_keys), T.ArrayType(entry))
        case T.AtomicType() if not isinstance(kind, T.VariantType):
            return value
    return value.cast("string")


def _compare_keys(entry: Column, other: Column) -> Column:
    """Keys of a map differ, and values need not be comparable."""
    return F.when(entry.getField("key") < other.getField("key"), -1).otherwise(1)
