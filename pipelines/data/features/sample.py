"""Samples the numbers of a column: the rows with the smallest hashes, so the sample does not depend on partitions."""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping

import numpy as np

# Quantiles are computed from this many rows; the standard error of the rank of a quantile is then at most 0.0016.
SAMPLE_ROWS = 100_000


class Sample:
    """Keeps the SAMPLE_ROWS rows of smallest order among all added rows."""

    def __init__(self) -> None:
        self._order, self._values = np.empty(0, np.uint64), np.empty(0, np.float64)
        self._limit = np.uint64(2**64 - 1)

    def add(self, values: np.ndarray, order: np.ndarray) -> None:
        small = order <= self._limit
        self._order = np.concatenate([self._order, order[small].astype(np.uint64)])
        self._values = np.concatenate([self._values, values[small]])
        if len(self._order) > 2 * SAMPLE_ROWS:
            self._keep_smallest()

    def summary(self) -> dict[str, str]:
        """The sample as JSON values: 16 bytes per row, in base64."""
        self._keep_smallest()
        return _summary(self._order, self._values)

    def _keep_smallest(self) -> None:
        self._order, self._values = _smallest(self._order, self._values)
        if len(self._order) == SAMPLE_ROWS:
            self._limit = self._order.max()


def combine_samples(summaries: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Combine the samples of partitions into the sample that one partition with all rows would give."""
    parts = list(summaries)
    order = np.concatenate([np.frombuffer(b64decode(part["order"]), "<u8") for part in parts])
    return _summary(*_smallest(order, np.concatenate([_values(part) for part in parts])))


def ascending_numbers(summary: Mapping[str, str]) -> np.ndarray:
    """The numbers of the sample, float64, in ascending order."""
    return np.sort(_values(summary))


def _summary(order: np.ndarray, values: np.ndarray) -> dict[str, str]:
    return {"order": _to_base64(order, "<u8"), "sample": _to_base64(values, "<f8")}


def _values(summary: Mapping[str, str]) -> np.ndarray:
    return np.frombuffer(b64decode(summary["sample"]), "<f8")


def _to_base64(values: np.ndarray, dtype: str) -> str:
    return b64encode(values.astype(dtype).tobytes()).decode()


def _smallest(order: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The SAMPLE_ROWS rows of smallest order. Ties are broken by value, so the result does not depend on partitions."""
    if len(order) <= SAMPLE_ROWS:
        return order, values
    limit = np.partition(order, SAMPLE_ROWS - 1)[SAMPLE_ROWS - 1]
    below = order < limit
    ties = np.sort(values[order == limit])[: SAMPLE_ROWS - int(below.sum())]
    return np.concatenate([order[below], np.full(len(ties), limit)]), np.concatenate([values[below], ties])
