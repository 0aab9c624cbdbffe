"""Keys of JSON records: matched with the schema's names whatever their case, as everywhere else, counted where the schema has no such
name, and refused where an object has one twice.

Spark matches keys exactly, leaves out all others, and takes the last of two. So keys are judged here. A key that differs in case is
overwritten in a copy of the text, which Spark parses.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.config.messages.counting import show_count, verb_for
from pipelines.config.messages.did_you_mean import suggestion
from pipelines.data.sources.text.json_names import Names, shape
from pipelines.data.sources.text.json_tokens import Keys, decode_key
from pipelines.data.sources.text.parsed import KEYLESS, TEXT, UNKNOWN

MOST_UNKNOWN = 100
"""Unknown keys that are counted by name in each batch; keys may be data."""
MOST_SHOWN = 10
OTHERS = ""
"""Stands for all other unknown keys."""
_SCHEMA = pa.schema({TEXT: pa.string(), UNKNOWN: pa.string(), KEYLESS: pa.bool_()})


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
