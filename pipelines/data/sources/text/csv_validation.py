"""Faults of a record before parsing: invalid bytes, stray quotes, lone surrogates."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NOT_TEXT = "not text of its encoding"
NUL = "NUL character"
QUOTES = "quote that is stray, or does not close on its line (multiLine: true allows line breaks in values, quote: '' takes quotes as text)"
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


def quote_offsets(data: bytes, quote: str, escape: str) -> np.ndarray:
    """Offsets of the quotes that open or close a value: doubled ones do both, escaped ones neither."""
    if escape not in ("", quote):
        data = re.sub(re.escape(escape.encode()) + b".", b"  ", data, flags=re.DOTALL)
    return np.flatnonzero(np.frombuffer(data, np.uint8) == ord(quote))


def stray_quotes(data: bytes, quotes: np.ndarray, separator: str, quote: str) -> np.ndarray:
    """Offsets of the quotes in whole records that are neither at the start or end of a value nor beside another quote.

    Every second quote opens a value. If the quote before it is adjacent, the pair is an escaped quote inside a value.
    """
    codes = np.frombuffer(data, np.uint8)
    bounds = np.zeros(256, bool)
    bounds[[ord(separator), ord(quote), ord("\n"), ord("\r")]] = True
    opening, closing = quotes[0::2], quotes[1::2]
    before = np.where(opening > 0, bounds[codes[opening - 1]], True)
    after = np.where(closing + 1 < len(codes), bounds[codes[np.minimum(closing + 1, len(codes) - 1)]], True)
    never_closed = quotes[-1:] if len(quotes) % 2 else quotes[:0]
    return np.concatenate([opening[~before], closing[~after], never_closed])


def is_well_quoted(texts: pa.StringArray, separator: str, quote: str, escape: str, ignore_leading_blanks: bool) -> np.ndarray:
    """A mask of the records with quotes only around whole values."""
    has_escapes = escape not in ("", quote)
    quote, separator, escape = re.escape(quote), re.escape(separator), re.escape(escape)
    inside = rf"(?:[^{quote}{escape}]|{escape}.)*" if has_escapes else f"(?:[^{quote}]|{quote}{quote})*"
    blanks = r"[ \t]*"
    value = f"{blanks if ignore_leading_blanks else ''}{quote}{inside}{quote}{blanks}"
    record = rf"(?s)\A(?:(?:[^{quote}]*{separator})?{value}(?:{separator}|\z))*[^{quote}]*\z"
    return pc.match_substring_regex(texts, record).to_numpy(zero_copy_only=False)


def half_surrogates(texts: pa.StringArray) -> np.ndarray:
    """Whether a record has an escape of a lone surrogate, which is no text in any encoding."""
    mask = pc.match_substring_regex(texts, r"\\u[dD][89a-fA-F]").to_numpy(zero_copy_only=False)
    for index in np.flatnonzero(mask):
        mask[index] = has_half_surrogate(texts[index].as_py())
    return mask


def has_half_surrogate(text: str) -> bool:
    bare = re.sub(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}", "", text.replace("\\\\", ""))
    return re.search(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}", bare) is not None
