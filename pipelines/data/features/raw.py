"""Converts columns of the query for encoders and their statistics: numbers to float64, categories to text, texts to words.

All use the same functions, so the values that are counted are the values that are encoded. Texts that are not UTF-8, as a cast of bytes to
text in a query gives, are NULL to statistics, and encoders refuse their rows."""

import math
from base64 import b64encode
from contextlib import suppress
from typing import Any

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
    """The words of each text as a list; NULL for a NULL text. A word is a run of letters, digits and `_` with the apostrophe before it, or
    any other single character except whitespace: `it's` has the words `it` and `'s`, as in treebanks."""
    spaced = pc.replace_substring_regex(text.cast(pa.string()), r"('?[\pL\pN\pM_]+|[^\s])", r" \1 ")
    # Behind white space at a text's end, Arrow 25 looks at the next byte, which may be beyond the buffer: the last word was a matter of
    # chance. So no text ends with white space.
    split = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(spaced))
    is_word = pc.not_equal(split.flatten(), "")  # splitting an empty text leaves one
    ends = np.concatenate([[0], np.cumsum(is_word.to_numpy(zero_copy_only=False))])[_offsets(split)]
    lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), split.flatten().filter(is_word))
    return pc.if_else(pc.is_valid(text), lists, pa.scalar(None, lists.type)) if text.null_count else lists


def _offsets(lists: pa.Array) -> np.ndarray:
    """Offsets of the lists in the flattened elements, shape (rows + 1,)."""
    return np.concatenate([[0], np.cumsum(pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False))])


def elements(values: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """The elements of all lists as text, concatenated, and the offset of each row in them, shape (rows + 1,). A NULL list has no
    elements."""
    return categories(values.flatten()), _offsets(values)


def check_category(kind: pa.DataType) -> None:
    if not is_category(kind):
        raise ConfigError(f"{kind} values are not categories; CAST them to STRING in the query")


def numbers(values: pa.Array) -> np.ndarray:
    """Convert values to float64, shape (rows,), with NaN for NULL. Integers beyond 2**53 and decimals are rounded to the nearest float64,
    true and false become 1 and 0, and −0 becomes 0. Raises ConfigError if the values are not numbers."""
    if not is_number(values.type):
        raise ConfigError(f"{values.type} values are not numbers; CAST them in the query, or use a categorical encoder such as vocabulary")
    if types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    return values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) + 0.0


def python_value(value: pa.Scalar) -> Any:
    """The value as Python has it; a time beyond the year 9999, which Python lacks, as text, and bytes that are not UTF-8 escaped."""
    try:
        return value.as_py()
    except UnicodeDecodeError:
        if is_list(value.type):
            return [python_value(element) for element in value.values]
        if types.is_struct(value.type):
            return {field.name: python_value(value[field.name]) for field in value.type}
        return value.cast(pa.large_binary()).as_py().decode(errors="backslashreplace") if is_text(value.type) else f"a {value.type}"
    except (OverflowError, ValueError):
        try:
            return str(value.cast(pa.string()))
        except pa.ArrowException:  # of a struct or a list
            return f"a {value.type} with a time that Python lacks"


def python_rows(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows as Python has them, by `python_value` where it lacks a value."""
    try:
        return rows.to_pylist()
    except (OverflowError, ValueError):
        columns = [[python_value(value) for value in column] for column in rows.columns]
        return [dict(zip(rows.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]


def record_value(value: Any) -> Any:
    """A value as records of the quarantine have it, in JSON: bytes as base64, as in Spark; NaN, times, decimals and others as text."""
    match value:
        case dict():
            return {str(name): record_value(inner) for name, inner in value.items()}
        case list() | tuple():
            return [record_value(inner) for inner in value]
        case bytes():
            return b64encode(value).decode()
        case None | bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return value
    return str(value)


def missing_values(values: pa.Array) -> int:
    """How many values are NULL or NaN."""
    if not types.is_floating(values.type):
        return int(values.null_count)
    return int(np.isnan(values.to_numpy(zero_copy_only=False)).sum())


def categories(values: pa.Array) -> pa.Array:
    """Convert values to strings, with NULL for NaN; numbers, booleans and times as Arrow formats them. Raises ConfigError for values of
    other types."""
    check_category(values.type)
    if types.is_floating(values.type):
        values = pc.add(pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values), pa.scalar(0, values.type))
    return values.cast(pa.string())


def find_invalid(values: pa.Array) -> np.ndarray | None:
    """Bool of shape (rows,), true where a text, or a text in an array, is not UTF-8; None if every text is valid, which Arrow sees at 0.14
    ns per byte. Texts in structs and in arrays of arrays are not looked at."""
    if not (is_text(values.type) or (is_list(values.type) and is_text(values.type.value_type))):
        return None
    with suppress(pa.ArrowInvalid):
        values.validate(full=True)
        return None
    texts = values if is_text(values.type) else values.flatten()
    is_invalid = np.array([text is not None and not _is_utf8(text) for text in texts.cast(pa.large_binary()).to_pylist()], bool)
    if is_text(values.type):
        return is_invalid
    lengths = pc.list_value_length(values).fill_null(0).to_numpy(zero_copy_only=False)
    return np.bincount(np.repeat(np.arange(len(values)), lengths), is_invalid, len(values)) > 0


def null_invalid(values: pa.Array) -> pa.Array:
    """The values, with NULL for those that are not UTF-8."""
    is_invalid = find_invalid(values)
    return values if is_invalid is None else null_rows(values, is_invalid)


def null_rows(values: pa.Array, is_null: np.ndarray) -> pa.Array:
    return values.take(pa.array(np.arange(len(values)), mask=is_null))


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
