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


def is_text(kind: pa.DataType) -> bool:
    return types.is_string(kind) or types.is_large_string(kind)


def words(text: pa.Array) -> pa.Array:
    """Each text's words, as a list: runs of letters and digits with the apostrophe before them, and any other character
    that is no blank by itself, so that `it's` is `it` and `'s` as treebanks have it. NULL where the text is."""
    apart = pc.replace_substring_regex(text.cast(pa.string()), r"('?[\pL\pN\pM_]+|[^\s])", r" \1 ")
    found = pc.utf8_split_whitespace(apart)
    kept = pc.not_equal(found.flatten(), "")
    # Splitting leaves an empty word at either end.
    ends = np.concatenate([[0], np.cumsum(kept.to_numpy(zero_copy_only=False))])[_offsets(found)]
    lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), found.flatten().filter(kept))
    return pc.if_else(pc.is_valid(text), lists, pa.scalar(None, lists.type)) if text.null_count else lists


def _offsets(lists: pa.Array) -> np.ndarray:
    """Where each list begins in the flattened elements, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False))])


def elements(values: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """The elements of all lists as text, one after the other, and the offsets, shape (rows + 1,), between which each row's lie.
    A NULL list has none."""
    return categories(values.flatten()), _offsets(values)


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
