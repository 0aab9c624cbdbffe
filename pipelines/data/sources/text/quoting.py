"""Where records end whose values are quoted, and which records have quotes only around whole values.

Lines with an odd number of quotes are looked at in pairs. If the lines from one to the next, joined, are well quoted, they are one record
with line breaks in a value. Else the first alone is broken, and the search goes on behind it: a stray quote costs its own line, and no
other.
"""

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_BLANKS = b" \t"
_LEAST_SEPARATORS = 10
"""In lines that have as many as a row each, from which on they are rows, and no lines of a value: of a text, where every fifth line has one
comma, ten lines have so in one case of ten million."""


@dataclass(frozen=True)
class Quoting:
    separator: str = ","
    quote: str = ""
    """Empty if quotes have no meaning."""
    escape: str = ""
    """The character that escapes a quote; by default a quote."""
    ignore_leading_blanks: bool = False
    """A quote also opens a value after blanks."""

    @property
    def is_simple(self) -> bool:
        """Whether NumPy decides of most records."""
        return self.escape in ("", self.quote) and len(self.separator.encode()) == 1


def quote_offsets(data: bytes, quoting: Quoting) -> np.ndarray:
    """Offsets of the quotes that open or close a value: doubled ones do both, escaped ones neither."""
    if quoting.escape not in ("", quoting.quote):
        data = re.sub(re.escape(quoting.escape.encode()) + b".", b"  ", data, flags=re.DOTALL)
    return np.flatnonzero(np.frombuffer(data, np.uint8) == ord(quoting.quote))


@dataclass(frozen=True)
class RecordEnds:
    offsets: np.ndarray
    """Behind each record."""
    are_sound: bool = False
    """Whether all of the records are surely well quoted."""


def record_ends(data: bytes, line_ends: np.ndarray, quoting: Quoting, may_be_open: bool) -> RecordEnds:
    """Offsets after the records of `data`, out of those after its lines. The last may be open, and go on behind the data."""
    quotes = quote_offsets(data, quoting)
    quotes_before = np.searchsorted(quotes, line_ends)
    is_odd = quotes_before % 2 == 1
    # Nearly always all quotes open and close values in turn.
    are_sound = quoting.is_simple and not len(stray_quotes(data, quotes, quoting))
    if are_sound and (may_be_open or not is_odd[-1:].any()):
        return RecordEnds(line_ends[~is_odd], are_sound)
    odd_lines = np.flatnonzero(np.diff(is_odd, prepend=False))
    if not len(odd_lines):
        return RecordEnds(line_ends)
    pairs, last = _pair_lines(data, line_ends, odd_lines, quotes, quotes_before, quoting)
    is_inside = np.zeros(len(line_ends) + 1, np.int8)
    is_inside[odd_lines[pairs]] += 1
    is_inside[odd_lines[pairs + 1]] -= 1
    ends_record = np.cumsum(is_inside[:-1]) == 0
    if last is not None and may_be_open and not _is_hopeless(data, quotes, quotes_before, odd_lines[last], quoting):
        ends_record[odd_lines[last] :] = False
    return RecordEnds(line_ends[ends_record])


def _pair_lines(
    data: bytes, line_ends: np.ndarray, odd_lines: np.ndarray, quotes: np.ndarray, quotes_before: np.ndarray, quoting: Quoting
) -> tuple[np.ndarray, int | None]:
    """The first of each two odd lines that begin and end a record, as places in `odd_lines`, and the last odd line if it has no second."""
    starts = np.concatenate(([0], line_ends))[odd_lines]
    first_quotes = np.concatenate(([0], quotes_before))[odd_lines]
    is_doubtful = np.ones(max(len(odd_lines) - 1, 0), bool)
    if quoting.is_simple:
        strays = np.array([_count_strays(data, quotes, phase, quoting) for phase in (0, 1)])
        after = quotes_before[odd_lines]
        phases = first_quotes % 2
        is_doubtful = strays[phases[:-1], after[1:]] > strays[phases[:-1], first_quotes[:-1]]
    pairs, place, most = list[np.ndarray](), 0, 1
    while place < len(odd_lines) - 1:
        candidates = np.arange(place, min(place + 2 * most, len(odd_lines) - 1), 2)
        doubtful = candidates[is_doubtful[candidates]]
        texts = pa.array([data[starts[first] : line_ends[odd_lines[first + 1]]].rstrip(b"\r\n") for first in doubtful], pa.binary())
        broken = doubtful[~is_well_quoted(_as_text(texts), quoting)] if len(doubtful) else doubtful
        stop = int(broken[0]) if len(broken) else int(candidates[-1]) + 2
        pairs.append(candidates[candidates < stop])
        place, most = (stop + 1, 1) if len(broken) else (stop, min(2 * most, 4096))
    return np.concatenate(pairs) if pairs else np.empty(0, np.int64), place if place == len(odd_lines) - 1 else None


def _as_text(texts: pa.BinaryArray) -> pa.StringArray:
    """Texts to search for quotes, whatever their bytes are."""
    try:
        return texts.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([text.decode("utf-8", "replace") for text in texts.to_pylist()], pa.string())


def _count_strays(data: bytes, quotes: np.ndarray, phase: int, quoting: Quoting) -> np.ndarray:
    """The number of stray quotes before each quote, and in all, if the quotes from the one at place `phase` on open and close in turn."""
    may_open, may_close = _may_open_and_close(data, quotes, quoting)
    is_sound = may_close
    is_sound[phase::2] = may_open[phase::2]
    return np.concatenate(([0], np.cumsum(~is_sound)))


def _is_hopeless(data: bytes, quotes: np.ndarray, quotes_before: np.ndarray, line: int, quoting: Quoting) -> bool:
    """Whether no end makes the record well quoted that begins in this line, since a quote is already stray beyond doubt."""
    if not quoting.is_simple:
        return False
    inside = quotes[quotes_before[line - 1] if line else 0 :]
    inside = inside[inside + 1 < len(data)]
    codes = np.frombuffer(data, np.uint8)
    bounds = _bounds(quoting) | np.isin(np.arange(256), list(_BLANKS))
    opening, closing = inside[0::2], inside[1::2]
    return not (bounds[codes[opening[opening > 0] - 1]].all() and bounds[codes[closing + 1]].all())


def _bounds(quoting: Quoting) -> np.ndarray:
    """Whether a character may stand beside a quoted value."""
    bounds = np.zeros(256, bool)
    bounds[[ord(quoting.separator), ord(quoting.quote), ord("\n"), ord("\r")]] = True
    return bounds


def _may_open_and_close(data: bytes, quotes: np.ndarray, quoting: Quoting) -> tuple[np.ndarray, np.ndarray]:
    """Whether each quote stands where a value may begin, and where it may end. Beside another quote, it does."""
    codes, bounds = np.frombuffer(data, np.uint8), _bounds(quoting)
    may_open, may_close = bounds[codes[quotes - 1]], bounds[codes[np.minimum(quotes + 1, len(codes) - 1)]]
    may_open[:1] |= quotes[:1] == 0
    may_close[-1:] |= quotes[-1:] + 1 == len(codes)
    return may_open, may_close


def stray_quotes(data: bytes, quotes: np.ndarray, quoting: Quoting) -> np.ndarray:
    """Offsets of the quotes that are neither at the start or end of a value nor beside another quote. Every second quote opens a value. If
    the quote before it is adjacent, the pair is an escaped quote inside a value."""
    opening, closing = quotes[0::2], quotes[1::2]
    return np.concatenate(
        [opening[~_may_open_and_close(data, opening, quoting)[0]], closing[~_may_open_and_close(data, closing, quoting)[1]]]
    )


def well_quoted(texts: pa.StringArray, data: bytes, ends: np.ndarray, quoting: Quoting) -> np.ndarray:
    """A mask of the records with quotes only around whole values. Records that NumPy cannot decide go through a regular expression, which
    takes ten times as long."""
    good = np.ones(len(texts), bool)
    doubtful = np.arange(len(texts))
    if quoting.is_simple:
        quotes = quote_offsets(data, quoting)
        counts = np.diff(np.searchsorted(quotes, ends), prepend=0)
        good = counts % 2 == 0
        if not good.all():
            quotes = quotes[np.repeat(good, counts)]
        doubtful = np.unique(np.searchsorted(ends, stray_quotes(data, quotes, quoting), side="right"))
    if len(doubtful):
        good[doubtful] = is_well_quoted(texts.take(doubtful), quoting)
    return good


def is_well_quoted(texts: pa.StringArray, quoting: Quoting) -> np.ndarray:
    """A mask of the records with quotes only around whole values."""
    has_escapes = quoting.escape not in ("", quoting.quote)
    quote, separator, escape = re.escape(quoting.quote), re.escape(quoting.separator), re.escape(quoting.escape)
    inside = rf"(?:[^{quote}{escape}]|{escape}.)*" if has_escapes else f"(?:[^{quote}]|{quote}{quote})*"
    blanks = r"[ \t]*"
    value = f"{blanks if quoting.ignore_leading_blanks else ''}{quote}{inside}{quote}{blanks}"
    record = rf"(?s)\A(?:(?:[^{quote}]*{separator})?{value}(?:{separator}|\z))*[^{quote}]*\z"
    return pc.match_substring_regex(texts, record).to_numpy(zero_copy_only=False)


def lines_in_doubt(texts: pa.StringArray, refused: np.ndarray, width: int, quoting: Quoting, is_open: bool) -> tuple[np.ndarray, bool]:
    """A mask of the records that may be lines of a broken value, which a refused one above has opened, and whether that goes on behind
    them. `is_open` if one before the records has. Such lines end before the next quotes. They are rows if all are as wide, and many."""
    doubtful = np.zeros(len(texts), bool)
    if not is_open and not refused.any():
        return doubtful, False
    is_wide = pc.equal(pc.count_substring(texts, quoting.separator), width - 1).to_numpy(zero_copy_only=False)
    is_blank = pc.equal(pc.binary_length(pc.ascii_trim_whitespace(texts)), 0).to_numpy(zero_copy_only=False)

    def are_rows(start: int, end: int) -> bool:
        wide = is_wide[start:end]
        return wide.sum() * (width - 1) >= _LEAST_SEPARATORS and bool((wide | is_blank[start:end]).all())

    quoted = np.append(np.flatnonzero(pc.match_substring(texts, quoting.quote).to_numpy(zero_copy_only=False)), len(texts))
    starts = np.flatnonzero(refused)
    ends = quoted[np.searchsorted(quoted, starts, side="right")]
    broken = texts.take(starts)
    opens, closes = _may_open_value(broken, quoting), _may_close_value(broken, quoting)
    last_end = int(quoted[0])
    if is_open:
        doubtful[:last_end] = is_open = not are_rows(0, last_end)
    for place, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        is_open = bool(opens[place] or (is_open and start == last_end and not closes[place]))
        last_end = end
        if is_open:
            doubtful[start + 1 : end] = is_open = not are_rows(start + 1, end)
    return doubtful, is_open and last_end == len(texts)


def _may_open_value(texts: pa.StringArray, quoting: Quoting) -> np.ndarray:
    """Whether a value may go on behind a broken line: no quote closes it that stands at its start, or before what is no end of a value."""
    quote, separator, escape = re.escape(quoting.quote), re.escape(quoting.separator), re.escape(quoting.escape or quoting.quote)
    within = rf"{quote}[ \t]*[^ \t{re.escape(quoting.separator[0])}{quote}]"
    look = rf"(?s)(?:(?:\A|{separator})[ \t]*{quote}|{within})(?:[^{quote}]|{escape}{quote}|{within})*\z"
    return pc.match_substring_regex(texts, look).to_numpy(zero_copy_only=False)


def _may_close_value(texts: pa.StringArray, quoting: Quoting) -> np.ndarray:
    """Whether a single quote ends a value in a broken line."""
    quote, separator = re.escape(quoting.quote), re.escape(quoting.separator)
    look = rf"(?s)(?:\A|[^{quote}])(?:{quote}{quote})*{quote}[ \t]*(?:{separator}|\z)"
    return pc.match_substring_regex(texts, look).to_numpy(zero_copy_only=False)
