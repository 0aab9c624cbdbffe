"""Floats in the values of JSON that are too large, which Spark reads as infinity."""

from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType

LARGE = r"[eE]\+?[0-9]{2}|[0-9]{38}"
"""In the text of every record with a float that is too large."""


def is_infinite(value: Column, kind: DataType) -> Column | None:
    """Whether a float in a value of that type is infinite; None if it contains no floats."""
    match kind:
        case DoubleType() | FloatType():
            return F.coalesce(F.abs(value) == float("inf"), F.lit(False))
        case ArrayType():
            return _any(value, kind.elementType)
        case MapType():
            return _any(F.map_values(value), kind.valueType)
        case StructType():
            found = [is_infinite(value[field.name], field.dataType) for field in kind]
            known = [column for column in found if column is not None]
            return reduce(or_, known) if known else None
    return None


def _any(values: Column, kind: DataType) -> Column | None:
    def condition(element: Column) -> Column:
        found = is_infinite(element, kind)
        return F.lit(False) if found is None else found

    has_floats = is_infinite(F.lit(None).cast(kind), kind) is not None
    return F.coalesce(F.exists(values, condition), F.lit(False)) if has_floats else None
