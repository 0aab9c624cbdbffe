"""Finds the keys in JSON records, with NumPy on whole batches: in sound JSON a string before a colon is a key.

A record that is not sound has any keys, but disturbs no other.
"""

import json

import numpy as np
import pyarrow as pa

_QUOTE, _BACKSLASH, _COLON = 34, 92, 58
_BLANKS = np.isin(np.arange(256), [9, 10, 13, 32])
_STEPS = np.zeros(256, np.int8)
_STEPS[[ord("{"), ord("[")]], _STEPS[[ord("}"), ord("]")]] = 1, -1


class Keys:
    """The keys in records: the first byte of each and the byte after its last, its record, depth and object, from 0 each but depth; and the
    `depths` that occur."""

    def __init__(self, texts: pa.StringArray) -> None:
        self.data, self.starts = _text_bytes(texts)
        records = np.arange(len(texts))
        quotes = _quotes(self.data)
        before = np.searchsorted(quotes, self.starts)
        of_quote = np.repeat(records, np.diff(before))
        if (is_closed := np.diff(before) % 2 == 0).all():
            strings, of_string = quotes, of_quote[0::2]
        else:
            strings, of_string = quotes[is_closed[of_quote]], of_quote[is_closed[of_quote]][0::2]
        opening, closing = strings[0::2], strings[1::2]
        is_key = _is_before_colon(self.data, closing)
        self.start, self.stop, self.record = opening[is_key] + 1, closing[is_key], of_string[is_key]
        steps = np.flatnonzero(_STEPS[self.data])
        of_step = np.repeat(records, np.diff(np.searchsorted(steps, self.starts)))
        is_outside = (np.searchsorted(quotes, steps) - before[of_step]) % 2 == 0
        steps, of_step = steps[is_outside], of_step[is_outside]
        change = _STEPS[self.data[steps]]
        heights = np.concatenate(([0], np.cumsum(change, dtype=np.int64)))
        at_record = heights[np.searchsorted(steps, self.starts)]
        self.depth = heights[np.searchsorted(steps, self.start)] - at_record[self.record]
        self.depths = np.flatnonzero(np.bincount(np.maximum(self.depth, 0))).tolist()
        self.object = -1 - self.record
        # The depth that an opening bracket leads to, within its record.
        levels = np.where(change == 1, heights[1:] - at_record[of_step], 0)
        for depth in self.depths:
            is_at_depth = self.depth == depth
            if len(brackets := steps[levels == depth]):
                self.object[is_at_depth] = brackets[np.searchsorted(brackets, self.start[is_at_depth]) - 1]

    def __len__(self) -> int:
        return len(self.start)

    def distinct(self) -> tuple[np.ndarray, list[bytes]]:
        """The number of each key's text, and the texts."""
        lengths = self.stop - self.start
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
        places = np.repeat(self.start - offsets[:-1], lengths) + np.arange(offsets[-1])
        texts = pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(self.data[places])])
        encoded = texts.dictionary_encode()
        return encoded.indices.to_numpy(), encoded.dictionary.to_pylist()


def _text_bytes(texts: pa.StringArray) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of all texts, and where each begins, with the end of the last."""
    _, offsets, data = texts.buffers()
    if not len(texts) or data is None:
        return np.zeros(0, np.uint8), np.zeros(len(texts) + 1, np.int64)
    starts = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    return np.frombuffer(data, np.uint8)[starts[0] : starts[-1]], starts - starts[0]


def _quotes(data: np.ndarray) -> np.ndarray:
    """Places of the quotes that a backslash does not escape."""
    quotes, slashes = np.flatnonzero(data == _QUOTE), np.flatnonzero(data == _BACKSLASH)
    if not len(slashes) or not len(quotes):
        return quotes
    numbers = np.arange(len(slashes))
    first = np.maximum.accumulate(np.where(np.diff(slashes, prepend=-2) != 1, numbers, 0))
    length = numbers - first + 1
    """Of the run of backslashes up to each."""
    before = np.searchsorted(slashes, quotes) - 1
    follows = (before >= 0) & (slashes[before] == quotes - 1)
    return quotes[~(follows & (length[before] % 2 == 1))]


def _is_before_colon(data: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Whether the first byte after each place that is not blank is a colon."""
    at = np.minimum(places + 1, len(data) - 1)
    while (blank := _BLANKS[data[at]] & (at < len(data) - 1)).any():
        at = at + blank
    return data[at] == _COLON


def decode_key(raw: bytes) -> str:
    """A key as Spark reads it."""
    text = raw.decode("utf-8", "replace")
    if "\\" not in text:
        return text
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:
        return text
