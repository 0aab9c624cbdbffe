"""Texts that are not UTF-8, as a cast of bytes to text in a query gives: statistics take them for NULL, and encoders refuse their rows."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.data.features.raw import is_list, is_text

FAULT = "it is no Unicode text"


def find_invalid(values: pa.Array) -> np.ndarray | None:
    """Bool of shape (rows,), true where a text, or a text in an array, is not UTF-8; None if every text is valid, which Arrow sees at 0.14
    ns per byte. Texts in structs and in arrays of arrays are not looked at."""
    has_texts = is_text(values.type) or (is_list(values.type) and is_text(values.type.value_type))
    if not has_texts or _is_valid(values):
        return None
    if is_text(values.type):
        return np.array([text is not None and not _is_utf8(text) for text in _bytes(values)], bool)
    lengths = pc.list_value_length(values).fill_null(0).to_numpy(zero_copy_only=False)
    is_invalid = [text is not None and not _is_utf8(text) for text in _bytes(values.flatten())]
    return np.bincount(np.repeat(np.arange(len(values)), lengths), is_invalid, len(values)) > 0


def null_invalid(values: pa.Array) -> pa.Array:
    """The values, with NULL for those that are not UTF-8."""
    is_invalid = find_invalid(values)
    return values if is_invalid is None else null_rows(values, is_invalid)


def null_rows(values: pa.Array, is_null: np.ndarray) -> pa.Array:
    """The values, with NULL in these rows."""
    return values.take(pa.array(np.arange(len(values)), mask=is_null))


def count_bytes(value: pa.Scalar) -> int:
    """The bytes of a text, or of the texts in an array."""
    return sum(len(text or b"") for text in _bytes(value.values if is_list(value.type) else pa.array([value])))


def _is_valid(values: pa.Array) -> bool:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _bytes(texts: pa.Array) -> list[bytes | None]:
    texts_as_bytes: list[bytes | None] = texts.cast(pa.large_binary()).to_pylist()
    return texts_as_bytes


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
