"""Collections that can be merged: sums, a bounded number of rows selected by a key, and every score of a split, for curves whose areas are
exact.

Scores are kept as long as there are no more than MOST_SCORES of them, which is a property of the split, not of how its rows are spread:
so either all workers together have all scores, or the areas come from the counts of bins, which are kept in any case.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pipelines.ranking import average_precision, roc_area

MOST_SCORES = 4_000_000
"""Scores of a split, one for each row and curve: 36 MB of a binary target. With more, areas have a bound instead of being exact."""
MOST_POINTS = 500
"""Points of a curve that are kept to be drawn, evenly spaced along it."""


class Scores:
    def __init__(self, limit: int = MOST_SCORES) -> None:
        self.limit, self.count, self.is_complete = limit, 0, True
        self._scores: list[np.ndarray] = []
        self._true: list[np.ndarray] = []

    def expect(self, scores: int) -> None:
        """Keep nothing if there will be more scores than the limit."""
        if scores > self.limit:
            self._give_up()

    def add(self, scores: np.ndarray, true: np.ndarray) -> None:
        """Add rows: scores, float64 of shape (rows, curves), and the number of each row's class."""
        self.count += scores.size
        if self.count > self.limit:
            self._give_up()
        if self.is_complete:
            self._scores.append(scores)
            self._true.append(true.astype(np.int32))

    def merge(self, other: "Scores") -> None:
        if not other.is_complete:
            self._give_up()
        elif other.has_rows:
            self.add(*other.collect())

    def collect(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores of shape (rows, curves), and classes of shape (rows,)."""
        return np.concatenate(self._scores), np.concatenate(self._true)

    @property
    def has_rows(self) -> bool:
        return bool(self._scores)

    def _give_up(self) -> None:
        self.is_complete, self._scores, self._true = False, [], []


@dataclass(frozen=True)
class Thresholds:
    """The distinct scores of one curve, from the highest to the lowest."""

    scores: np.ndarray
    rows_of_class: np.ndarray
    """Rows with each score that are of the class, int64."""
    other_rows: np.ndarray

    @classmethod
    def from_rows(cls, scores: np.ndarray, is_of_class: np.ndarray) -> "Thresholds":
        """From a score and whether it is of the class, for each row."""
        distinct, places = np.unique(-np.nan_to_num(scores, nan=0.5), return_inverse=True)
        rows_of_class = np.bincount(places[is_of_class], minlength=len(distinct))
        return cls(-distinct, rows_of_class, np.bincount(places, minlength=len(distinct)) - rows_of_class)

    def areas(self) -> dict[str, float | None]:
        """`roc`, the share of pairs in the right order, ties as half a pair, None without rows of both kinds; and `precision`, the
        average precision (the sum of precision over the steps of recall, as scikit-learn has it), None without rows of the class."""
        areas = {"roc": roc_area(self.rows_of_class, self.other_rows), "precision": average_precision(self.rows_of_class, self.other_rows)}
        return {name: None if np.isnan(area) else area for name, area in areas.items()}

    def thin(self, most: int = MOST_POINTS) -> "Thresholds":
        """At most so many points of the curve, the last one among them: rows between two of them are counted at the lower score."""
        if len(self.scores) <= most:
            return self
        along = sum(np.cumsum(rows) / max(rows.sum(), 1) for rows in (self.rows_of_class, self.other_rows))
        steps = np.minimum((along / along[-1] * most).astype(np.int64), most - 1)
        last = np.flatnonzero(np.diff(steps, append=most))
        counts = [np.diff(np.cumsum(rows)[last], prepend=0) for rows in (self.rows_of_class, self.other_rows)]
        return Thresholds(self.scores[last], *counts)


class Sums:
    """Arrays of sums by name, which `add` creates. Merging adds them, so floats depend on the order of merges."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}

    def add(self, name: str, values: np.ndarray) -> None:
        """Add to the array of this name, elementwise."""
        self.arrays[name] = self.arrays[name] + values if name in self.arrays else values

    def merge(self, other: "Sums") -> None:
        for name, values in other.arrays.items():
            self.add(name, values)


class SelectedRows:
    """The `limit` rows with the smallest keys, in whatever order they come. Of equal keys, smaller row numbers win."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.keys = np.empty(0)
        self.rows = np.empty(0, np.int64)
        """Row numbers within the split."""
        self.columns: dict[str, np.ndarray] = {}

    def offer(self, keys: np.ndarray, rows: np.ndarray, columns: Callable[[np.ndarray], dict[str, np.ndarray]]) -> None:
        """Select the rows that belong to the smallest. `columns` returns their values, from their places in the batch."""
        places = np.arange(len(keys))
        if len(self.keys) == self.limit:
            places = places[keys <= self.keys[-1]]
        if len(places) > self.limit:
            places = places[np.lexsort((rows[places], keys[places]))[: self.limit]]
        if len(places):
            self._join(keys[places], rows[places], columns(places))

    def merge(self, other: "SelectedRows") -> None:
        if len(other.keys):
            self._join(other.keys, other.rows, other.columns)

    def _join(self, keys: np.ndarray, rows: np.ndarray, columns: dict[str, np.ndarray]) -> None:
        keys, rows = np.concatenate([self.keys, keys]), np.concatenate([self.rows, rows])
        chosen = np.lexsort((rows, keys))[: self.limit]
        old = self.columns
        self.columns = {name: (np.concatenate([old[name], values]) if old else values)[chosen] for name, values in columns.items()}
        self.keys, self.rows = keys[chosen], rows[chosen]


Part = Sums | SelectedRows | Scores


def sampling_keys(rows: np.ndarray) -> np.ndarray:
    """A pseudorandom key for each row number: the rows with the smallest ones are a sample that depends on nothing else.

    The finaliser of SplitMix64 (Steele, Lea and Flood 2014), its upper 53 bits as a float64 in [0, 1).
    """
    bits = rows.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    return ((bits ^ (bits >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53
