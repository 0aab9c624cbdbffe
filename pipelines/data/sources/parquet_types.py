"""Types of Parquet columns that Spark does not read as they are, or that differ from file to file."""

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NumericType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from pipelines.data.sources.parquet_columns import NANOSECONDS_UTC
from pipelines.errors import SourceError

_WIDENING: tuple[tuple[DataType, ...], ...] = ((ByteType(), ShortType(), IntegerType(), LongType()), (FloatType(), DoubleType()))
"""Each type holds every value of those before it."""


def from_nanoseconds(nanoseconds: Column, kind: str) -> Column:
    """The timestamps of a column of whole nanoseconds since 1970, rounded down to microseconds. The session's time zone is UTC."""
    # `div` rounds to zero, and `/` would divide doubles.
    microseconds = F.call_function("div", nanoseconds, F.lit(1_000)) - F.when(nanoseconds % 1_000 < 0, 1).otherwise(0)
    return F.timestamp_micros(microseconds).cast(type_of_nanoseconds(kind))


def type_of_nanoseconds(kind: str) -> DataType:
    return TimestampType() if kind == NANOSECONDS_UTC else TimestampNTZType()


def wide_type(name: str, kinds: Sequence[tuple[str, DataType]]) -> DataType:
    """The narrowest type that holds all values of a column, from its types with a file of each.

    Raises SourceError naming two files if no type does.
    """
    path, wide = kinds[0]
    for other_path, other in kinds[1:]:
        family = next((types for types in _WIDENING if wide in types and other in types), None)
        if family is None and wide != other:
            raise SourceError(
                f"column {name} is {wide.simpleString()} in {path} and {other.simpleString()} in {other_path}, where Spark widens only "
                "integers to integers and floats to doubles; make them tables of their own, and join them in the query: "
                f"SELECT CAST({name} AS {_castable(wide, other)}) AS {name} … UNION ALL SELECT …, with the same CAST in both"
            )
        if family is not None and family.index(other) > family.index(wide):
            path, wide = other_path, other
    return wide


def _castable(*both: DataType) -> str:
    """A type to which both can be cast."""
    if not all(isinstance(kind, NumericType) for kind in both):
        return StringType().simpleString()
    decimals = [kind for kind in both if isinstance(kind, DecimalType)]
    integers_else = all(isinstance(kind, DecimalType) or kind in _WIDENING[0] for kind in both)
    return f"decimal(38,{max(kind.scale for kind in decimals)})" if decimals and integers_else else DoubleType().simpleString()
