"""Collections that can be merged: sums, and a bounded number of rows selected by a key."""

from collections.abc import Callable

import numpy as np

from pipelines.tasks.details.scores import Scores


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
        """Arrays with one entry per kept row."""

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
