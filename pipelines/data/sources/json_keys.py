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

from pipelines.config.did_you_mean import suggestion
from pipelines.data.sources.json_names import Names, shape
from pipelines.data.sources.json_tokens import Keys, decode_key
from pipelines.data.sources.parsed import KEYLESS, TEXT, UNKNOWN

MOST_UNKNOWN = 100
"""Unknown keys that are counted by name in each batch; keys may be data."""
MOST_SHOWN = 10
OTHERS = ""
"""Stands for all other unknown keys."""
_SCHEMA = pa.schema({TEXT: pa.string(), UNKNOWN: pa.string(), KEYLESS: pa.bool_()})


def examined(names: Names, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch of record, problem and line, with refused duplicates and KEY_COLUMNS: the text to parse in place of the record, NULL if
    it is the record; the unknown keys of the batch with their numbers, in its first row; whether a record has no key of the schema.

    Keys are searched for only in records that have not the usual `shape`."""
    usual = shape(names)
    is_other = pc.invert(pc.match_substring_regex(batch["record"], usual)) if usual else pa.repeat(True, len(batch))
    others = batch.filter(is_other)
    keys = Keys(others["record"])
    matched = _Matched(keys, names)
    is_keyless = np.ones(len(others), bool)
    is_keyless[keys.record[matched.is_known & (keys.depth == 1)]] = False
    problems = pc.replace_with_mask(batch["problem"], is_other, _with_twice(keys, matched, others))
    renamed = pc.replace_with_mask(pa.nulls(len(batch), pa.string()), is_other, _renamed(keys, matched, others["record"]))
    unknown = [json.dumps(dict(matched.unknown)) if matched.unknown else None, *[None] * (len(batch) - 1)][: len(batch)]
    has_no_string = pc.invert(pc.match_substring(batch["record"], '"'))
    keyless = pc.replace_with_mask(has_no_string, is_other, pa.array(is_keyless, pa.bool_()))
    columns = [batch["record"], problems, batch["line"], renamed, pa.array(unknown, pa.string()), keyless]
    return pa.record_batch(columns, schema=pa.schema([*batch.schema, *_SCHEMA]))


class _Matched:
    """The keys of a batch, matched with the schema from the outermost inwards: an object's names are those of the key before it that is
    less deep."""

    def __init__(self, keys: Keys, names: Names) -> None:
        self._keys = keys
        self._text, self._texts = keys.distinct() if len(keys) else (np.zeros(0, np.int64), [])
        self._decoded = [decode_key(one) for one in self._texts]
        self._numbers: dict[str, int] = {}
        of_text = np.array([self._number(one) for one in self._decoded], np.int64)
        self.name = of_text[self._text] if len(keys) else self._text
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
        here = np.flatnonzero(keys.depth == depth)
        if depth == 1:
            scope = np.ones(len(here), np.int64)
        else:
            outer = np.maximum.accumulate(np.where(keys.depth < depth, np.arange(len(keys)), -1))[here]
            scope = np.where((outer >= 0) & (keys.record[outer] == keys.record[here]), self._scope_of_value[outer], 0)
        here, scope = here[scope > 0], scope[scope > 0]
        pairs = scope * len(self._texts) + self._text[here]
        order = np.argsort(pairs, kind="stable")
        pairs, first = pairs[order], np.flatnonzero(np.diff(pairs[order], prepend=-1))
        for pair, places in zip(pairs[first].tolist(), np.split(here[order], first)[1:], strict=True):
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


def _with_twice(keys: Keys, matched: _Matched, batch: pa.RecordBatch) -> pa.StringArray:
    """The problems of the batch's records, with the first key that an object of a record has twice."""
    of_object = keys.object * len(matched.names) + matched.name
    if (np.diff(np.sort(of_object)) != 0).all():
        return batch["problem"]
    order = np.argsort(of_object, kind="stable")
    again = np.flatnonzero(np.diff(of_object[order]) == 0) + 1
    told: list[str | None] = [None] * len(batch)
    for key in order[again].tolist():
        record = int(keys.record[key])
        told[record] = told[record] or f"key {matched.names[matched.name[key]]} occurs twice in an object"
    return pc.coalesce(batch["problem"], pa.array(told, pa.string()))


def _renamed(keys: Keys, matched: _Matched, texts: pa.StringArray) -> pa.StringArray:
    """The records in which a key has another case than its name in the schema, with that name; NULL for all others."""
    if not matched.new:
        return pa.nulls(len(texts), pa.string())
    data = bytearray(keys.data.tobytes())
    for key, new in matched.new.items():
        start, stop = int(keys.start[key]), int(keys.stop[key])
        data[start : stop + 1] = (new + b'"').ljust(stop + 1 - start)  # blanks after a key mean nothing
    changed = np.zeros(len(texts), bool)
    changed[keys.record[list(matched.new)]] = True
    offsets = pa.py_buffer(keys.starts.astype(np.int32))
    written = pa.Array.from_buffers(pa.string(), len(texts), [None, offsets, pa.py_buffer(bytes(data))])
    return pc.if_else(pa.array(changed), written, None)


def notes(table: str, batches: Iterable[str], keyless: int, names: Iterable[str]) -> Iterator[str]:
    """What to say of a table's keys: unknown ones, as UNKNOWN of its batches counts them, and the number of rows without any key of the
    schema's `names`."""
    if keyless:
        yield f"source.tables.{table}: {keyless:,} rows have no key of its schema, so that all of their columns are NULL"
    unknown = Counter[str]()
    for text in batches:
        unknown.update(json.loads(text))
    if unknown:
        others = unknown.pop(OTHERS, 0) + sum(count for _, count in unknown.most_common()[MOST_SHOWN:])
        shown = [
            f"{key} {count:,} times" + (f" ({meant})" if (meant := suggestion(key, names)) else "")
            for key, count in sorted(unknown.most_common(MOST_SHOWN), key=lambda pair: (-pair[1], pair[0]))
        ]
        more = f", and others {others:,} times" if others else ""
        yield f"source.tables.{table}: keys that its schema does not name are left out: {', '.join(shown)}{more}"
