"""What is wrong with a record before anything parses it: bytes that are no text, stray quotes, half a character."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NOT_TEXT = "not text of its encoding"
NUL = "NUL character"
QUOTES = "quote that is stray, or does not close on its line (multiLine: true allows line breaks in values, quote: '' takes quotes as text)"
SURROGATE = "half of a surrogate pair"


def texts_of(data: bytes, ends: np.ndarray, whole: bool) -> tuple[pa.StringArray, pa.StringArray]:
    """Records without their line breaks, and what is wrong with their bytes; those that are not UTF-8 with `\\xff` for a byte."""
    offsets = np.concatenate(([0], ends)).astype(np.int32)
    texts = pa.Array.from_buffers(pa.string(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    problems = pa.nulls(len(ends), pa.string())
    try:
        data.decode()
    except UnicodeDecodeError:
        raw = texts.cast(pa.binary()).to_pylist()
        shown = [record.decode("utf-8", "backslashreplace") for record in raw]
        problems = where([text.encode() != record for text, record in zip(shown, raw, strict=True)], NOT_TEXT, problems)
        texts = pa.array(shown)
    return (texts if whole else pc.ascii_rtrim(texts, "\r\n")), problems


def where(mask: object, reason: str, problems: pa.StringArray) -> pa.StringArray:
    """`reason` for the records of a mask that have none yet."""
    return pc.coalesce(problems, pc.if_else(mask if isinstance(mask, pa.Array) else pa.array(mask), reason, None))


def well_quoted(texts: pa.StringArray, separator: str, quote: str, escape: str, ignore_leading_blanks: bool) -> np.ndarray:
    """Which records have quotes only around whole values."""
    escaped = escape not in ("", quote)
    quote, separator, escape = re.escape(quote), re.escape(separator), re.escape(escape)
    inside = rf"(?:[^{quote}{escape}]|{escape}.)*" if escaped else f"(?:[^{quote}]|{quote}{quote})*"
    blanks = r"[ \t]*"
    value = f"{blanks if ignore_leading_blanks else ''}{quote}{inside}{quote}{blanks}"
    whole = rf"(?s)\A(?:(?:[^{quote}]*{separator})?{value}(?:{separator}|\z))*[^{quote}]*\z"
    return pc.match_substring_regex(texts, whole).to_numpy(zero_copy_only=False)


def half_surrogate(text: str) -> bool:
    """Whether JSON's escapes spell a surrogate that has no partner: no text in any encoding."""
    bare = re.sub(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}", "", text.replace("\\\\", ""))
    return re.search(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}", bare) is not None
