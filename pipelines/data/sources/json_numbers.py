"""Numbers in the values of JSON that Spark reads, though they are none: floats that are too large, which become infinity, and decimals
in quotes with commas or digits of other scripts."""

from collections.abc import Callable
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DecimalType, DoubleType, FloatType, MapType, StringType, StructField, StructType

from pipelines.data.sources.numbers import DIGITS, pattern

LARGE_NUMBER = r'[eE]\+?[0-9]{2}|[0-9]{29}|"[+-]?(?:INF|Inf)'
"""In the text of every record with a float that Spark reads as infinite. For RE2, as the next."""
STRANGE_DECIMAL = rf'"[0-9+.eE,-]*(?:[0-9][0-9+.eE,-]*,|,[0-9+.eE,-]*[0-9])[0-9+.eE,-]*"|"[0-9+.eE,-]*\\u|{DIGITS}'
"""In the text of every record with a decimal in quotes that has commas or digits of other scripts."""
Leaf = Callable[[Column, DataType], Column | None]


def is_infinite(value: Column, kind: DataType) -> Column | None:
    """Whether a float in a value of that type is infinite; None if it contains no floats."""
    return _any_in(value, kind, _is_infinite)


def is_no_decimal(value: Column, kind: DataType) -> Column | None:
    """Whether a decimal in a value is no number; None if it contains no decimals. The value has the type of `decimals_as_text`."""
    return _any_in(value, kind, _is_no_decimal)


def decimals_as_text(kind: DataType) -> DataType:
    """The type with text in place of each decimal."""
    match kind:
        case DecimalType():
            return StringType()
        case ArrayType():
            return ArrayType(decimals_as_text(kind.elementType))
        case MapType():
            return MapType(kind.keyType, decimals_as_text(kind.valueType))
        case StructType():
            return StructType([StructField(field.name, decimals_as_text(field.dataType)) for field in kind])
    return kind


def _is_infinite(value: Column, kind: DataType) -> Column | None:
    return F.abs(value) == float("inf") if isinstance(kind, DoubleType | FloatType) else None


def _is_no_decimal(text: Column, kind: DataType) -> Column | None:
    return ~text.rlike(pattern(kind)) if isinstance(kind, DecimalType) else None


def _any_in(value: Column, kind: DataType, leaf: Leaf) -> Column | None:
    """Whether `leaf` holds for anything in the value; None if it is None for all types in the type."""
    match kind:
        case ArrayType():
            return _any_element(value, kind.elementType, leaf)
        case MapType():
            return _any_element(F.map_values(value), kind.valueType, leaf)
        case StructType():
            inner = [_any_in(value[field.name], field.dataType, leaf) for field in kind]
            conditions = [column for column in inner if column is not None]
            return reduce(or_, conditions) if conditions else None
    condition = leaf(value, kind)
    return None if condition is None else F.coalesce(condition, F.lit(False))


def _any_element(values: Column, kind: DataType, leaf: Leaf) -> Column | None:
    def condition(element: Column) -> Column:
        inner = _any_in(element, kind, leaf)
        return F.lit(False) if inner is None else inner

    has_leaves = _any_in(F.lit(None), kind, leaf) is not None
    return F.coalesce(F.exists(values, condition), F.lit(False)) if has_leaves else None
