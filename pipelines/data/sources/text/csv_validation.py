"""Faults of a record before parsing: invalid bytes, stray quotes, which `quoting` finds, lone surrogates."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NOT_TEXT = "not text of its encoding"
NUL = "NUL character"
QUOTES = "quote that is stray, or does not close on its line (multiLine: true allows line breaks in values, quote: '' takes quotes as text)"
IN_DOUBT = "line that may belong to a value above it, which a quote begins that is stray or does not close"
SURROGATE = "half of a surrogate pair"


def decode_records(data: bytes, ends: np.ndarray, keep_line_breaks: bool) -> tuple[pa.StringArray, pa.StringArray]:
    """Records without their line breaks, and the faults of their bytes; invalid bytes are shown as `\\xff`."""
    offsets = np.concatenate(([0], ends)).astype(np.int32)
    texts = pa.Array.from_buffers(pa.string(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    problems = pa.nulls(len(ends), pa.string())
    try:
        data.decode()
    except UnicodeDecodeError:
        raw = texts.cast(pa.binary()).to_pylist()
        escaped = [record.decode("utf-8", "backslashreplace") for record in raw]
        problems = set_reason([text.encode() != record for text, record in zip(escaped, raw, strict=True)], NOT_TEXT, problems)
        texts = pa.array(escaped)
    return (texts if keep_line_breaks else pc.ascii_rtrim(texts, "\r\n")), problems


def set_reason(mask: object, reason: str, problems: pa.StringArray) -> pa.StringArray:
    """Set `reason` for the records of a mask that have none yet."""
    return pc.coalesce(problems, pc.if_else(mask if isinstance(mask, pa.Array) else pa.array(mask), reason, None))


def half_surrogates(texts: pa.StringArray) -> np.ndarray:
    """Whether a record has an escape of a lone surrogate, which is no text in any encoding."""
    mask = pc.match_substring_regex(texts, r"\\u[dD][89a-fA-F]").to_numpy(zero_copy_only=False)
    for index in np.flatnonzero(mask):
        mask[index] = has_half_surrogate(texts[index].as_py())
    return mask


def has_half_surrogate(text: str) -> bool:
    bare = re.sub(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}", "", text.replace("\\\\", ""))
    return re.search(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}", bare) is not None
