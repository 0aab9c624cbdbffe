"""Which rows were added, removed, altered or moved to another split, between two versions.

Where both versions keep the hashes of their rows' keys, a row of one key whose content differs is altered. Without keys a row is known by
its encoded values alone, which have a meaning only under one state of the encoders: then an altered row is one removed and one added.
Versions that have neither are compared by their numbers of rows alone.
Rows are compared as multisets, so that equal rows count as often as they occur.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pipelines.data.versions.manifest import SPLITS, FittedEncoder, tensor_columns
from pipelines.data.versions.row_keys import has_keys, read_keys
from pipelines.data.versions.versions import Version, read_stored_columns

ROWS_AT_ONCE = 30_000_000
"""Rows of a version whose hashes are compared at once, at about 100 bytes each; of more, the files are read several times."""
MOST_SAMPLES = 12
"""Rows of a kind that are located, for a page."""
Basis = Literal["keys", "encoded rows", "nothing"]
Places = Sequence[tuple[str, int]]
"""Split and position within it of rows."""


@dataclass(frozen=True)
class SplitRows:
    """Numbers of rows of one split, by what became of them."""

    before: int
    now: int
    added: int | None = None
    """None, as below, if rows could not be compared."""
    removed: int | None = None
    changed: int | None = None
    """Rows of one key with another content; they count in the split that they are in now."""
    moved: int | None = None
    """Rows that were in another split, some of which may be altered as well; they are neither added nor removed."""


@dataclass(frozen=True)
class RowChanges:
    by_split: Mapping[str, SplitRows]
    basis: Basis
    note: str = ""
    """How rows were compared, if a reader should know, or why they were not."""
    added: Places = ()
    """Some of them, in the later version."""
    removed: Places = ()
    """In the earlier version."""
    changed: Sequence[tuple[tuple[str, int], tuple[str, int]]] = ()
    """Places before and now."""
    unequal: int = 0
    """Rows that differ in any way; where rows were not compared, those by which the splits differ in size."""


@dataclass(frozen=True)
class HashedRows:
    """Hashes of some rows of a version, arrays of shape (rows,)."""

    row: np.ndarray
    """int64: of the key, or of the encoded row."""
    content: np.ndarray
    """int64: of the raw row; 0 without keys."""
    split: np.ndarray
    """int8, places in SPLITS."""
    position: np.ndarray
    """int64, within the split."""

    def take(self, indices: np.ndarray) -> "HashedRows":
        return HashedRows(self.row[indices], self.content[indices], self.split[indices], self.position[indices])

    def places(self, most: int) -> list[tuple[str, int]]:
        pairs = zip(self.split[:most].tolist(), self.position[:most].tolist(), strict=True)
        return [(SPLITS[split], position) for split, position in pairs]


Chunks = Callable[[Version, str], Iterator[HashedRows]]
"""Reads the hashes of a split, piece by piece."""


def compare_rows(before: Version, now: Version) -> RowChanges:
    """Compare the rows of two versions. Raises CorruptError if a file of them is damaged or gone."""
    if has_row_keys(before) and has_row_keys(now):
        return _compare(before, now, _read_key_hashes, "keys", "")
    if encodes_alike(before, now):
        missing = " and ".join(name for name, version in (("A", before), ("B", now)) if not has_row_keys(version))
        note = f"{missing} has no keys, so that an altered row counts as one removed and one added; set dataset.key, and run jobs/etl.py"
        return _compare(before, now, _hash_encoded_rows, "encoded rows", note.replace("has", "have") if " and " in missing else note)
    counts = {split: SplitRows(before.rows(split), now.rows(split)) for split in SPLITS}
    note = (
        "rows were not compared: a version has no keys, and the encoders differ in settings or state, so that equal rows have other "
        "encoded values; set dataset.key, and run jobs/etl.py for both"
    )
    return RowChanges(counts, "nothing", note, unequal=sum(abs(rows.now - rows.before) for rows in counts.values()))


def has_row_keys(version: Version) -> bool:
    """Whether every part of a version has a file of the keys of its rows."""
    return has_keys(version.filesystem, version.root, version.row_groups)


def encodes_alike(before: Version, now: Version) -> bool:
    """Whether equal rows have equal encoded values in both versions."""
    first, second = before.manifest.encoders, now.manifest.encoders
    return first.keys() == second.keys() and all(_encoding(first[name]) == _encoding(second[name]) for name in first)


def _encoding(fitted: FittedEncoder) -> tuple[object, ...]:
    """All that decides the bytes of an encoded value."""
    return fitted.inputs, fitted.feature, fitted.state, fitted.column.dtype, fitted.column.shape


def _compare(before: Version, now: Version, read: Chunks, basis: Basis, note: str) -> RowChanges:
    most = max(sum(version.rows(split) for split in SPLITS) for version in (before, now))
    buckets = -(-most // ROWS_AT_ONCE) or 1
    counts = np.zeros((4, len(SPLITS)), np.int64)
    added: list[tuple[str, int]] = []
    removed: list[tuple[str, int]] = []
    changed: list[tuple[tuple[str, int], tuple[str, int]]] = []
    for bucket in range(buckets):
        pairs = match_rows(*(_bucket(version, read, bucket, buckets) for version in (before, now)))
        for place, rows in enumerate((pairs.added, pairs.removed, pairs.changed[1], pairs.moved)):
            counts[place] += np.bincount(rows.split, minlength=len(SPLITS))
        added += pairs.added.places(MOST_SAMPLES)
        removed += pairs.removed.places(MOST_SAMPLES)
        first, second = (rows.places(MOST_SAMPLES) for rows in pairs.changed)
        changed += zip(first, second, strict=True)
    by_split = {split: SplitRows(before.rows(split), now.rows(split), *counts[:, place].tolist()) for place, split in enumerate(SPLITS)}
    samples = added[:MOST_SAMPLES], removed[:MOST_SAMPLES], changed[:MOST_SAMPLES]
    return RowChanges(by_split, basis, note, *samples, int(counts.sum()))


def _bucket(version: Version, read: Chunks, bucket: int, buckets: int) -> HashedRows:
    """The rows of all splits whose hash is of this bucket."""
    chunks = [chunk for split in SPLITS for chunk in read(version, split)]
    if buckets > 1:
        chunks = [chunk.take(np.flatnonzero(chunk.row.view(np.uint64) % np.uint64(buckets) == bucket)) for chunk in chunks]
    empty = HashedRows(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int8), np.empty(0, np.int64))
    columns = ([getattr(chunk, name) for chunk in (empty, *chunks)] for name in ("row", "content", "split", "position"))
    return HashedRows(*map(np.concatenate, columns))


def _read_key_hashes(version: Version, split: str) -> Iterator[HashedRows]:
    start = 0
    for _, keys in read_keys(version.filesystem, version.root, version.split_row_groups(split)):
        row, content = (keys.column(name).to_numpy() for name in ("row", "content"))
        yield _number_rows(split, start, row, content)
        start += len(row)


def _hash_encoded_rows(version: Version, split: str) -> Iterator[HashedRows]:
    columns, start = tensor_columns(version.manifest.encoders), 0
    for group in version.split_row_groups(split):
        (arrays,) = read_stored_columns(version.filesystem, version.root, [group], columns)
        row = hash_rows([group.select(arrays)[column.name] for column in columns])
        yield _number_rows(split, start, row, np.zeros_like(row))
        start += len(row)


def _number_rows(split: str, start: int, row: np.ndarray, content: np.ndarray) -> HashedRows:
    return HashedRows(row, content, np.full(len(row), SPLITS.index(split), np.int8), start + np.arange(len(row)))


def hash_rows(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """An int64 hash of each row over the bytes of arrays of shape (rows, …): of 10**9 different rows two have one in 37 versions."""
    rows = len(arrays[0])
    pieces = [np.ascontiguousarray(values).reshape(rows, -1).view(np.uint8) for values in arrays]
    width = sum(piece.shape[1] for piece in pieces)
    words = np.concatenate([*pieces, np.zeros((rows, -width % 8), np.uint8)], axis=1).view(np.uint64)
    hashes = np.full(rows, width, np.uint64)
    for place in range(words.shape[1]):
        hashes = mix(hashes ^ words[:, place])
    return hashes.view(np.int64)


def mix(values: np.ndarray) -> np.ndarray:
    """Bijective mixing of uint64: the output function of SplitMix64 (Steele, Lea and Flood 2014), of the next state."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)))


@dataclass(frozen=True)
class MatchedRows:
    """Rows of two versions that are not the same row in the same split."""

    added: HashedRows
    removed: HashedRows
    changed: tuple[HashedRows, HashedRows]
    """Before and now, in one order."""
    moved: HashedRows
    """As they are now."""


def match_rows(before: HashedRows, now: HashedRows) -> MatchedRows:
    """Match rows of two versions: first those that are equal, then those with the same key, each first within a split."""
    moved, changes = [], list[tuple[HashedRows, HashedRows]]()
    for has_content in (True, False):
        for has_split in (True, False):
            first, second = match_labels(*(_labels(rows, has_content, has_split) for rows in (before, now)))
            if not has_split:
                moved.append(now.take(second))
            if not has_content:
                changes.append((before.take(first), now.take(second)))
            before, now = (rows.take(_others(rows, matched)) for rows, matched in ((before, first), (now, second)))
    return MatchedRows(
        now, before, (_concatenate([pair[0] for pair in changes]), _concatenate([pair[1] for pair in changes])), _concatenate(moved)
    )


def _labels(rows: HashedRows, has_content: bool, has_split: bool) -> np.ndarray:
    labels = mix(rows.row.view(np.uint64))
    if has_content:
        labels = mix(labels ^ rows.content.view(np.uint64))
    return mix(labels ^ rows.split.astype(np.uint64)) if has_split else labels


def match_labels(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices of pairs with equal labels, each row in one pair at most: of equal labels as many as both arrays have."""
    orders = [np.argsort(labels, kind="stable") for labels in (first, second)]
    uniques = [
        np.unique(labels[order], return_index=True, return_counts=True) for labels, order in zip((first, second), orders, strict=True)
    ]
    _, in_first, in_second = np.intersect1d(uniques[0][0], uniques[1][0], assume_unique=True, return_indices=True)
    counts = np.minimum(uniques[0][2][in_first], uniques[1][2][in_second])
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = [unique[1][places] for unique, places in zip(uniques, (in_first, in_second), strict=True)]
    pairs = (order[np.repeat(start, counts) + within] for order, start in zip(orders, starts, strict=True))
    return next(pairs), next(pairs)


def _others(rows: HashedRows, matched: np.ndarray) -> np.ndarray:
    is_unmatched = np.ones(len(rows.row), bool)
    is_unmatched[matched] = False
    return np.flatnonzero(is_unmatched)


def _concatenate(pieces: Sequence[HashedRows]) -> HashedRows:
    columns = ([getattr(piece, name) for piece in pieces] for name in ("row", "content", "split", "position"))
    return HashedRows(*map(np.concatenate, columns))
