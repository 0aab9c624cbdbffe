"""The rows of each step as a pure function of plain numbers. NumPy only, no I/O, no state.

An epoch's order depends only on the row groups' sizes, `Order` and the epoch's number: not on workers,
threads, prefetching or earlier steps. The construction has five steps:

1. Slices are the split's row groups, or equal cuts of them where there are few. They are permuted, by (seed, epoch).
2. Their concatenated rows form a circle, which is rotated by an offset, by (seed, epoch): otherwise a split of one row
   group would leave out the same rows in every epoch.
3. Shard v of V owns an equal arc of the circle. Rows after the last arc are the epoch's remainder.
4. Within a shard every `window` consecutive pieces of slices are permuted row by row, by (seed, epoch, v, window).
5. Global step s takes rows [s·m, (s+1)·m) of every shard, m = global batch / V.

Positions are therefore found from prefix sums: no step before s is computed to start at s."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np

from pipelines.errors import ConfigError
from pipelines.runtime import philox

SLICES, OFFSET, WINDOW, KEYS, CLIENTS, CLIENT_ROWS, NOISE = range(7)
"""The purposes of random words; each has its own streams."""
_KEY_STRIDE = 0xD1342543DE82EF95
"""Between the keys of neighbouring rows; odd, so that no two rows of an epoch share a key."""
ORDER_VERSION = 1
"""Raise it whenever the same arguments give another order; checkpoints record it."""
SLICES_PER_SHARD = 16
"""Row groups are cut to reach this number, since an arc of very few slices would be a poor sample."""


@dataclass(frozen=True)
class Order:
    """All settings that decide the order of a split's rows."""

    shards: int = 8
    global_batch: int = 512
    """Rows per step, over all shards."""
    seed: int = 0
    window: int = 4
    """Number of pieces of slices that are shuffled together."""
    remainder: Literal["drop", "keep"] = "drop"
    """Rows that do not fill a global batch are left out of this epoch, or make a last, smaller step."""
    shuffle: bool = True
    """False keeps the stored order: shard v reads the v-th arc sequentially."""

    def __post_init__(self) -> None:
        if self.shards < 1 or self.window < 1 or self.global_batch < 1 or self.global_batch % self.shards:
            raise ConfigError(
                f"global_batch {self.global_batch} over {self.shards} shards with window {self.window}: "
                "all are at least 1, and the shards divide the global batch"
            )

    @property
    def microbatch(self) -> int:
        """Rows that each shard gives to a step."""
        return self.global_batch // self.shards

    def full_steps(self, rows: int) -> int:
        return rows // self.global_batch

    def remainder_rows(self, rows: int) -> int:
        """Rows of an epoch that do not fill a global batch."""
        return rows % self.global_batch

    def steps(self, rows: int) -> int:
        """Steps of an epoch over `rows` rows, the same for every worker and for any number of workers. Raises ConfigError if there is
        none."""
        steps = self.full_steps(rows) + (self.remainder == "keep" and self.remainder_rows(rows) > 0)
        if not steps:
            raise ConfigError(
                f"{rows} rows do not fill one global batch of {self.global_batch}; lower train.global_batch, or set train.remainder to keep"
            )
        return steps


def shard_range(rank: int, world_size: int, shards: int) -> range:
    """The contiguous shards that worker `rank` of `world_size` owns; their number differs by at most one between workers. Raises
    ConfigError if there are more workers than shards."""
    if not 0 <= rank < world_size <= shards:
        raise ConfigError(f"worker {rank} of {world_size} over {shards} shards: every worker owns at least one; lower train.workers")
    return range(rank * shards // world_size, (rank + 1) * shards // world_size)


@dataclass(frozen=True)
class RowRuns:
    """Runs of consecutive rows, in the order of visits: three int64 arrays, each of shape (runs,)."""

    group: np.ndarray
    """Row group."""
    start: np.ndarray
    """First row within the row group."""
    rows: np.ndarray


@dataclass(frozen=True)
class RunWindows:
    """Consecutive runs that are permuted together, cut out of all runs on demand: of a million row groups there are many."""

    runs: RowRuns
    first_run: np.ndarray
    """Number of each window's first run, int64 of shape (windows,), ascending."""

    def __len__(self) -> int:
        return len(self.first_run)

    def __getitem__(self, window: int) -> RowRuns:
        first = int(self.first_run[window])
        end = int(self.first_run[window + 1]) if window + 1 < len(self) else len(self.runs.rows)
        return RowRuns(*(values[first:end] for values in (self.runs.group, self.runs.start, self.runs.rows)))


class Epoch:
    """The order of one epoch over row groups of `group_rows` rows each, shape (row groups,)."""

    def __init__(self, order: Order, group_rows: np.ndarray, epoch: int) -> None:
        self.order, self.number = order, epoch
        self.rows = int(group_rows.sum())
        self.first_row = np.cumsum(group_rows) - group_rows
        """Number of each row group's first row, shape (row groups,)."""
        slices = _cut_slices(np.asarray(group_rows, np.int64), order.shards)
        if order.shuffle:
            slice_order = permutation(len(slices.rows), order.seed, SLICES, epoch)
            slices = RowRuns(slices.group[slice_order], slices.start[slice_order], slices.rows[slice_order])
        self._slices = slices
        self._ends = np.cumsum(slices.rows)
        self._offset = int(words(1, order.seed, OFFSET, epoch)[0] % np.uint64(max(self.rows, 1))) if order.shuffle else 0

    @cached_property
    def steps(self) -> int:
        return self.order.steps(self.rows)

    def shard(self, number: int) -> "Shard":
        """The sequence of rows that shard `number` visits in this epoch."""
        order, steps = self.order, self.order.full_steps(self.rows)
        arc = steps * order.microbatch
        arcs = [self._arc(number * arc, arc)]
        if order.remainder == "keep":
            rows = order.remainder_rows(self.rows)
            start, stop = number * rows // order.shards, (number + 1) * rows // order.shards
            arcs.append(self._arc(order.shards * arc + start, stop - start))
        return Shard(self, number, _cut_windows(arcs, order.window))

    def _arc(self, start: int, rows: int) -> RowRuns:
        """The runs that make up `rows` positions of the rotated circle from `start` on."""
        first = (start + self._offset) % max(self.rows, 1)
        spans = [(first, min(first + rows, self.rows)), (0, max(first + rows - self.rows, 0))]
        return _join_runs([self._runs(begin, end) for begin, end in spans if end > begin])

    def _runs(self, begin: int, end: int) -> RowRuns:
        """The runs between two positions of the unrotated circle, begin < end."""
        first = int(np.searchsorted(self._ends, begin, side="right"))
        last = int(np.searchsorted(self._ends, end, side="left")) + 1
        group, start, rows = (values[first:last].copy() for values in (self._slices.group, self._slices.start, self._slices.rows))
        before = begin - (int(self._ends[first]) - int(rows[0]))
        start[0] += before
        rows[0] -= before
        rows[-1] -= int(self._ends[last - 1]) - end
        return RowRuns(group, start, rows)


class Shard:
    """One shard's rows in one epoch, as windows."""

    def __init__(self, epoch: Epoch, number: int, windows: RunWindows) -> None:
        self.windows = windows
        self._epoch, self._number = epoch, number
        self.window_rows = np.add.reduceat(windows.runs.rows, windows.first_run) if len(windows) else np.zeros(0, np.int64)
        self.window_ends = np.cumsum(self.window_rows)
        self.rows = int(self.window_rows.sum())

    def find(self, position: int) -> tuple[int, int]:
        """The window that contains the shard's row `position`, and the row's index in it."""
        window = int(np.searchsorted(self.window_ends, position, side="right"))
        return window, position - int(self.window_ends[window] - self.window_rows[window])

    def permutation(self, window: int) -> np.ndarray:
        """The order of visits to the window's rows: indices into its concatenated runs, shape (rows,), int64."""
        rows, order = int(self.window_rows[window]), self._epoch.order
        if not order.shuffle:
            return np.arange(rows)
        return permutation(rows, order.seed, WINDOW, self._epoch.number, self._number, window)

    def row_numbers(self, window: int) -> np.ndarray:
        """Numbers of the window's rows within the split, for its concatenated runs before the permutation."""
        runs = self.windows[window]
        first = self._epoch.first_row[runs.group] + runs.start
        inside = np.arange(int(self.window_rows[window])) - np.repeat(np.cumsum(runs.rows) - runs.rows, runs.rows)
        return np.repeat(first, runs.rows) + inside


def _cut_slices(group_rows: np.ndarray, shards: int) -> RowRuns:
    """Row groups, each cut into equal slices where there are fewer than SLICES_PER_SHARD for a shard."""
    groups = len(group_rows)
    cuts = -(-SLICES_PER_SHARD * shards // max(groups, 1)) if groups < SLICES_PER_SHARD * shards else 1
    edges = group_rows[:, None] * np.arange(cuts + 1) // cuts
    start, rows = edges[:, :-1].ravel(), np.diff(edges, axis=1).ravel()
    group = np.repeat(np.arange(groups), cuts)
    return RowRuns(group[rows > 0], start[rows > 0], rows[rows > 0])


def _cut_windows(arcs: list[RowRuns], window: int) -> RunWindows:
    """RunWindows of so many runs of each arc; the last one of an arc may have fewer."""
    ends = np.cumsum([0, *(len(arc.rows) for arc in arcs)])
    return RunWindows(_join_runs(arcs), np.concatenate([np.arange(first, end, window) for first, end in pairwise(ends.tolist())]))


def _join_runs(pieces: list[RowRuns]) -> RowRuns:
    empty = np.zeros(0, np.int64)
    return RowRuns(*(np.concatenate([empty, *(getattr(piece, name) for piece in pieces)]) for name in ("group", "start", "rows")))


def row_keys(seed: int, epoch: int) -> tuple[int, int]:
    """(stride, start), signed 64 bits: a row's key in an epoch is stride · its number + start, modulo 2**64. A key is not random itself,
    since neighbouring rows' keys are a stride apart: random numbers are made by mixing its bits."""
    stride, start = np.array([_KEY_STRIDE, words(1, seed, KEYS, epoch)[0]], np.uint64).view(np.int64)
    return int(stride), int(start)


def words(count: int, seed: int, purpose: int, epoch: int, shard: int = 0, window: int = 0) -> np.ndarray:
    """Random words; each purpose, epoch, shard and window has a stream of its own."""
    key = np.array([seed % 2**64, purpose], np.uint64)
    counter = np.array([0, window, shard, epoch], np.uint64)
    return philox.random_words(count, key, counter)


def permutation(count: int, seed: int, purpose: int, epoch: int, shard: int = 0, window: int = 0) -> np.ndarray:
    """A permutation of range(count): the order that sorts random words. Each word's low bits are replaced by its index, so that sorting the
    words also gives the indices. That is three times as fast as argsort, and equal words cannot sort differently on another processor."""
    low = np.uint64(2 ** max(count - 1, 1).bit_length() - 1)
    shuffled = words(count, seed, purpose, epoch, shard, window)
    shuffled &= ~low
    shuffled |= np.arange(count, dtype=np.uint64)
    # Sorted first by their 16 high bits, which NumPy does by radix, and then, when few are far from their place, by merging runs:
    # 100,000 take 11 ns each, and 39 in one sort, whose vector instructions are slow on some processors.
    shuffled = shuffled.take((shuffled >> np.uint64(48)).astype(np.uint16).argsort(kind="stable"))
    shuffled.sort(kind="stable")
    shuffled &= low
    return shuffled.view(np.int64)
