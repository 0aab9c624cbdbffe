"""Keys of JSON records: cut out of their text, named, and compared with a schema, for faults that Spark would not report."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from pipelines.config.messages.words import show_count, suggestion, verb_for
from pipelines.data.sources.text.parsed import KEYLESS, TEXT, UNKNOWN

_QUOTE, _BACKSLASH, _COLON = 34, 92, 58
_BLANKS = np.isin(np.arange(256), [9, 10, 13, 32])
_STEPS = np.zeros(256, np.int8)
_STEPS[[ord("{"), ord("[")]], _STEPS[[ord("}"), ord("]")]] = 1, -1
MOST_NAMES = 100
"""Of more, RE2 follows too many at once: 400 take a hundred times as long."""
_STRING = r'"(?:[^"\\]|\\.)*"'
_TEXT = r'[^"{}:\\]'
_BLANK = r"[ \t\r\n]*"
MOST_UNKNOWN = 100
"""Unknown keys that are counted by name in each batch; keys may be data."""
MOST_SHOWN = 10
OTHERS = ""
"""Stands for all other unknown keys."""
_SCHEMA = pa.schema({TEXT: pa.string(), UNKNOWN: pa.string(), KEYLESS: pa.bool_()})


class Keys:
    """The keys in records: the first byte of each and the byte after its last, its record, depth and object, from 0 each but depth; and the
    `depths` that occur."""

    def __init__(self, texts: pa.StringArray) -> None:
        # The bytes of all texts, and where each begins, with the end of the last.
        self.data, self.starts = np.zeros(0, np.uint8), np.zeros(len(texts) + 1, np.int64)
        _, offsets, data = texts.buffers()
        if len(texts) and data is not None:
            starts = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
            self.data, self.starts = np.frombuffer(data, np.uint8)[starts[0] : starts[-1]], starts - starts[0]
        records = np.arange(len(texts))
        quotes = _quotes(self.data)
        before = np.searchsorted(quotes, self.starts)
        record_of_quote = np.repeat(records, np.diff(before))
        if (is_closed := np.diff(before) % 2 == 0).all():
            strings, record_of_string = quotes, record_of_quote[0::2]
        else:
            strings, record_of_string = quotes[is_closed[record_of_quote]], record_of_quote[is_closed[record_of_quote]][0::2]
        opening, closing = strings[0::2], strings[1::2]
        # A key is before a colon, with blanks between them or none.
        at = np.minimum(closing + 1, len(self.data) - 1)
        while (blank := _BLANKS[self.data[at]] & (at < len(self.data) - 1)).any():
            at = at + blank
        is_key = self.data[at] == _COLON
        self.start, self.stop, self.record = opening[is_key] + 1, closing[is_key], record_of_string[is_key]
        steps = np.flatnonzero(_STEPS[self.data])
        record_of_step = np.repeat(records, np.diff(np.searchsorted(steps, self.starts)))
        is_outside = (np.searchsorted(quotes, steps) - before[record_of_step]) % 2 == 0
        steps, record_of_step = steps[is_outside], record_of_step[is_outside]
        change = _STEPS[self.data[steps]]
        heights = np.concatenate(([0], np.cumsum(change, dtype=np.int64)))
        at_record = heights[np.searchsorted(steps, self.starts)]
        self.depth = heights[np.searchsorted(steps, self.start)] - at_record[self.record]
        self.depths = np.flatnonzero(np.bincount(np.maximum(self.depth, 0))).tolist()
        self.object = -1 - self.record
        # The depth that an opening bracket leads to, within its record.
        levels = np.where(change == 1, heights[1:] - at_record[record_of_step], 0)
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


def decode_key(raw: bytes) -> str:
    """A key as Spark reads it."""
    text = raw.decode("utf-8", "replace")
    if "\\" not in text:
        return text
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:
        return text


@dataclass(frozen=True)
class Names:
    """The names that an object may have as keys; of a map, any."""

    fields: dict[str, "Names | None"] = field(default_factory=dict)
    values: "Names | None" = None
    """Of a map's values."""
    is_map: bool = False

    def matching(self, key: str) -> str | None:
        """The field of that name, or the one that differs in case alone."""
        return key if key in self.fields else next((name for name in self.fields if name.lower() == key.lower()), None)


def key_names(kind: DataType) -> Names | None:
    """The keys of the objects in values of a type; None if it has no objects."""
    match kind:
        case StructType():
            return Names({column.name: key_names(column.dataType) for column in kind})
        case MapType():
            return Names(values=key_names(kind.valueType), is_map=True)
        case ArrayType():
            return key_names(kind.elementType)
    return None


def shape(names: Names) -> str | None:
    """An expression for records in which the keys of each object are the schema's, as written there and in its order, each at most once.
    A string before a colon is a key, and no other colon is outside strings. Maps have no shape, nor has a schema of many names."""
    return rf"(?s)\A{_BLANK}{_object(names)}{_BLANK}\z" if _size(names) <= MOST_NAMES else None


def _size(names: Names | None) -> int:
    return sum(1 + _size(inner) for inner in names.fields.values()) if names else 0


def _object(names: Names) -> str:
    pairs = ""
    for name, inner in names.fields.items():
        nested = f"|{_object(inner)}" if inner and not inner.is_map else ""
        # All text up to the next key: lists and commas too, since Spark refuses what is no JSON.
        value = f"(?:{_TEXT}|{_STRING}{nested})*"
        pairs += rf"(?:{re.escape(json.dumps(name, ensure_ascii=False))}{_BLANK}:{value})?"
    return rf"\{{{_TEXT}*{pairs}\}}"


def examine_keys(names: Names, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch of record, problem and line, with refused duplicates and KEY_COLUMNS: the text to parse in place of the record, NULL if
    it is the record; the unknown keys of the batch with their numbers, in its first row; whether a record has no key of the schema.

    Keys are searched for only in records that have not the usual `shape`."""
    usual_shape = shape(names)
    is_unusual = pc.invert(pc.match_substring_regex(batch["record"], usual_shape)) if usual_shape else pa.repeat(True, len(batch))
    unusual = batch.filter(is_unusual)
    keys = Keys(unusual["record"])
    matches = _KeyMatches(keys, names)
    is_keyless = np.ones(len(unusual), bool)
    is_keyless[keys.record[matches.is_known & (keys.depth == 1)]] = False
    problems = pc.replace_with_mask(batch["problem"], is_unusual, _duplicate_problems(keys, matches, unusual))
    renamed = pc.replace_with_mask(pa.nulls(len(batch), pa.string()), is_unusual, _rename_keys(keys, matches, unusual["record"]))
    unknown = [json.dumps(dict(matches.unknown)) if matches.unknown else None, *[None] * (len(batch) - 1)][: len(batch)]
    has_no_string = pc.invert(pc.match_substring(batch["record"], '"'))
    keyless = pc.replace_with_mask(has_no_string, is_unusual, pa.array(is_keyless, pa.bool_()))
    columns = [batch["record"], problems, batch["line"], renamed, pa.array(unknown, pa.string()), keyless]
    return pa.record_batch(columns, schema=pa.schema([*batch.schema, *_SCHEMA]))


class _KeyMatches:
    """The keys of a batch, matched with the schema from the outermost inwards: an object's names are those of the key before it that is
    less deep."""

    def __init__(self, keys: Keys, names: Names) -> None:
        self._keys = keys
        self._text, self._texts = keys.distinct() if len(keys) else (np.zeros(0, np.int64), [])
        self._decoded = [decode_key(text) for text in self._texts]
        self._numbers: dict[str, int] = {}
        numbers = np.array([self._number(key) for key in self._decoded], np.int64)
        self.name = numbers[self._text] if len(keys) else self._text
        """By key, the number of the name that it has in the schema, or of the key itself."""
        self.is_known = np.zeros(len(keys), bool)
        self.new: dict[int, bytes] = {}
        """By key that differs from its name in the schema, the text of that name."""
        self.unknown = Counter[str]()
        self._scopes: list[Names | None] = [None, names]
        self._scope_of_value = np.zeros(len(keys), np.int64)
        """By key, the number of the names that the object in its value may have; 0 if they are not checked."""
        for depth in keys.depths:
            self._match_depth(depth)
        self.names = list(self._numbers)

    def _number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def _match_depth(self, depth: int) -> None:
        keys = self._keys
        at_depth = np.flatnonzero(keys.depth == depth)
        if depth == 1:
            scope = np.ones(len(at_depth), np.int64)
        else:
            outer = np.maximum.accumulate(np.where(keys.depth < depth, np.arange(len(keys)), -1))[at_depth]
            scope = np.where((outer >= 0) & (keys.record[outer] == keys.record[at_depth]), self._scope_of_value[outer], 0)
        at_depth, scope = at_depth[scope > 0], scope[scope > 0]
        pairs = scope * len(self._texts) + self._text[at_depth]
        order = np.argsort(pairs, kind="stable")
        pairs, first = pairs[order], np.flatnonzero(np.diff(pairs[order], prepend=-1))
        for pair, places in zip(pairs[first].tolist(), np.split(at_depth[order], first)[1:], strict=True):
            self._match(self._scopes[pair // len(self._texts)], pair % len(self._texts), places)

    def _match(self, scope: Names | None, text: int, places: np.ndarray) -> None:
        """Match the keys at these places, which have one text, with the names of their objects."""
        assert scope is not None, "number 0 is left out"
        key, name = self._decoded[text], scope.matching(self._decoded[text])
        new = b"" if name is None else json.dumps(name, ensure_ascii=False).encode()[1:-1]
        has_room = name == key or len(new) <= len(self._texts[text])
        if not scope.is_map and (name is None or not has_room):
            self.unknown[key if len(self.unknown) < MOST_UNKNOWN or key in self.unknown else OTHERS] += len(places)
            return
        self.is_known[places] = True
        inner = scope.values if scope.is_map else scope.fields[str(name)]
        if inner is not None:
            self._scopes.append(inner)
            self._scope_of_value[places] = len(self._scopes) - 1
        if name is not None and name != key:
            self.name[places] = self._number(name)
            self.new |= dict.fromkeys(places.tolist(), new)


def _duplicate_problems(keys: Keys, matches: _KeyMatches, batch: pa.RecordBatch) -> pa.StringArray:
    """The problems of the batch's records, with the first key that an object of a record has twice."""
    names_in_objects = keys.object * len(matches.names) + matches.name
    if (np.diff(np.sort(names_in_objects)) != 0).all():
        return batch["problem"]
    order = np.argsort(names_in_objects, kind="stable")
    duplicates = np.flatnonzero(np.diff(names_in_objects[order]) == 0) + 1
    problems: list[str | None] = [None] * len(batch)
    for key in order[duplicates].tolist():
        record = int(keys.record[key])
        problems[record] = problems[record] or f"key {matches.names[matches.name[key]]} occurs twice in an object"
    return pc.coalesce(batch["problem"], pa.array(problems, pa.string()))


def _rename_keys(keys: Keys, matches: _KeyMatches, texts: pa.StringArray) -> pa.StringArray:
    """The records in which a key has another case than its name in the schema, with that name; NULL for all others."""
    if not matches.new:
        return pa.nulls(len(texts), pa.string())
    data = bytearray(keys.data.tobytes())
    for key, new in matches.new.items():
        start, stop = int(keys.start[key]), int(keys.stop[key])
        data[start : stop + 1] = (new + b'"').ljust(stop + 1 - start)  # blanks after a key mean nothing
    changed = np.zeros(len(texts), bool)
    changed[keys.record[list(matches.new)]] = True
    offsets = pa.py_buffer(keys.starts.astype(np.int32))
    written = pa.Array.from_buffers(pa.string(), len(texts), [None, offsets, pa.py_buffer(bytes(data))])
    return pc.if_else(pa.array(changed), written, None)


def key_notes(table: str, batches: Iterable[str], keyless: int, names: Iterable[str]) -> Iterator[str]:
    """Notes on a table's keys: unknown ones, as UNKNOWN of its batches counts them, and the number of rows without any key of the schema's
    `names`."""
    if keyless:
        have = f"{show_count(keyless, 'row')} {verb_for(keyless, 'has', 'have')}"
        yield f"source.tables.{table}: {have} no key of its schema, so that all columns there are NULL"
    unknown = Counter[str]()
    for text in batches:
        unknown.update(json.loads(text))
    if unknown:
        unnamed = unknown.pop(OTHERS, 0) + sum(count for _, count in unknown.most_common()[MOST_SHOWN:])
        counts = [
            f"{key} {show_count(count, 'time')}" + (f" ({hint})" if (hint := suggestion(key, names)) else "")
            for key, count in sorted(unknown.most_common(MOST_SHOWN), key=lambda pair: (-pair[1], pair[0]))
        ]
        more = f", and others {show_count(unnamed, 'time')}" if unnamed else ""
        yield f"source.tables.{table}: keys that its schema does not name are left out: {', '.join(counts)}{more}"
