"""The query's columns as encoders and their statistics see them: numbers are float64, categories are text.

Both go through these two functions, so what was counted is what is encoded.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from pipelines.errors import ConfigError


def is_number(kind: pa.DataType) -> bool:
    return types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind)


def is_category(kind: pa.DataType) -> bool:
    return is_number(kind) or types.is_string(kind) or types.is_large_string(kind) or types.is_date(kind) or types.is_timestamp(kind)


def is_list(kind: pa.DataType) -> bool:
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def check_category(kind: pa.DataType) -> None:
    if not is_category(kind):
        raise ConfigError(f"{kind} values are not categories; CAST them to STRING in the query")


def numbers(values: pa.Array) -> np.ndarray:
    """float64, shape (rows,), NaN where a value is NULL or NaN.

    Whole numbers beyond 2**53 and decimals become the nearest float64, true and false 1 and 0, −0 becomes 0.
    Raises ConfigError if the values are not numbers.
    """
    if not is_number(values.type):
        raise ConfigError(f"{values.type} values are not numbers; CAST them in the query, or take a categorical encoder such as vocabulary")
    if types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    return values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) + 0.0


def categories(values: pa.Array) -> pa.Array:
    """Strings, NULL where a value is NULL or NaN; numbers, booleans and times as Arrow writes them.

    Raises ConfigError if the values are neither.
    """
    check_category(values.type)
    if types.is_floating(values.type):
        values = pc.add(pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values), pa.scalar(0, values.type))
    return values.cast(pa.string())
