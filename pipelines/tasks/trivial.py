"""Trivial predictors, which a model must beat. They use no feature, or only the last values.

A task names its own in `Task.trivial_predictors`. One is fitted on rows of the training split, and then stands in for the model: its
output has the form of the model's, so that the task measures both alike. The linear model of `jobs/baseline.py` is another matter: it
learns from the features.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from pipelines.tasks.data import Batch, row_count

Decode = Callable[[np.ndarray], np.ndarray]
_BISECTIONS = 200


class TrivialPredictor(ABC):
    """Predicts without learning from features. It holds plain values, which workers send each other."""

    name: str
    """What it predicts, in a few words, as in `class shares`."""
    stands_for: tuple[str, ...] = ()
    """The metrics that it is compared by; empty for all of the task."""
    reads_rows = True
    """Whether it is fitted on rows; else it is complete from the start."""

    def fit(self, batch: Batch) -> None:  # noqa: B027  one that reads no rows has none
        """Add rows of the training split, on the CPU. They come in an order that is always the same."""

    def finish(self) -> None:  # noqa: B027
        """No more rows come."""

    @abstractmethod
    def output(self, batch: Batch) -> Tensor:
        """The output that a model would return for these rows, on the CPU."""


class ConstantOutput(TrivialPredictor):
    """An output for all rows alike, from `finish`."""

    _output: Tensor
    """Shape (outputs,)."""

    def output(self, batch: Batch) -> Tensor:
        return self._output.expand(row_count(batch), -1)


class ClassShares(ConstantOutput):
    """The share of each class in the training split."""

    name = "class shares"

    def __init__(
        self,
        target: str,
        classes: int,
        counts: Sequence[int],
        output_of_shares: Callable[[Tensor], Tensor],
        weights: Sequence[float] = (),
        stands_for: tuple[str, ...] = (),
        row_weight: str = "",
    ) -> None:
        """`counts` are the rows of each class, if they are known. With weights of classes, or a column `row_weight`, the shares are of
        the weight. `output_of_shares` makes of them what a model would return for a row."""
        self.stands_for = stands_for
        self._target, self._weights = target, np.array(weights or [1.0] * classes)
        self._output_of_shares: Callable[[Tensor], Tensor] | None = output_of_shares
        self._row_weight = row_weight
        self.reads_rows = bool(row_weight) or len(counts) != classes or not sum(counts)
        self._counts = np.zeros(classes) if self.reads_rows else np.array(counts, np.float64)

    def fit(self, batch: Batch) -> None:
        if self.reads_rows:
            weights = batch[self._row_weight].double().numpy() if self._row_weight else None
            self._counts += np.bincount(batch[self._target].numpy().astype(np.int64), weights, minlength=len(self._counts))

    def finish(self) -> None:
        """A class without rows or weight has half a row's share, since no logit is −∞."""
        assert self._output_of_shares is not None
        weighed = torch.from_numpy(np.maximum(self._counts, 0.5) * np.maximum(self._weights, 1e-12))
        self._output = self._output_of_shares(weighed / weighed.sum())
        self._output_of_shares = None  # which other workers cannot be sent


class EarlierValue(TrivialPredictor):
    """The target's value some rows before, which a feature of the row holds: the last one of a series, or that of a season ago."""

    reads_rows = False

    def __init__(self, rows_before: int, feature: str, scale: float, shift: float, stands_for: tuple[str, ...]) -> None:
        """The encoded target is `scale` times the encoded feature, plus `shift`."""
        self.name, self.stands_for = f"the value {rows_before} row{'s' if rows_before > 1 else ''} before", stands_for
        self._feature, self._scale, self._shift = feature, scale, shift

    def output(self, batch: Batch) -> Tensor:
        return (batch[self._feature].double() * self._scale + self._shift)[:, None]


class ConstantFit(ConstantOutput):
    """Computed from the encoded values of the target in training."""

    def __init__(
        self, name: str, compute: Callable[[np.ndarray, np.ndarray], Tensor], target: str, stands_for: tuple[str, ...], row_weight: str = ""
    ) -> None:
        """`compute` makes what a model would return for a row, shape (outputs,), from values of shape (rows, …) and the weights of rows,
        which are 1 without the column `row_weight`."""
        self.name, self.stands_for, self._target, self._row_weight = name, stands_for, target, row_weight
        self._compute: Callable[[np.ndarray, np.ndarray], Tensor] | None = compute
        self._values: list[np.ndarray] = []
        self._weights: list[np.ndarray] = []

    def fit(self, batch: Batch) -> None:
        self._values.append(batch[self._target].double().numpy())
        if self._row_weight:
            self._weights.append(batch[self._row_weight].double().numpy())

    def finish(self) -> None:
        assert self._compute is not None
        values = np.concatenate(self._values) if self._values else np.zeros(1)
        self._output = self._compute(values, np.concatenate(self._weights) if self._weights else np.ones(len(values)))
        self._values, self._weights, self._compute = [], [], None


def centre(measure: Callable[[np.ndarray], np.floating], decode: Decode | None = None) -> Callable[[np.ndarray, np.ndarray], Tensor]:
    """Make what `ConstantFit` computes: the mean or the median of a target that is a number, shape (1,). With `decode`, it is the encoded
    value whose value in the units of the query is the centre there."""

    def compute(values: np.ndarray, weights: np.ndarray) -> Tensor:
        value = float(measure(values))
        if decode is not None:
            target_value = float(measure(np.asarray(decode(values), np.float64)))
            value = invert_decoding(target_value, decode, value, float(values.min()), float(values.max()))
        return torch.tensor([value], dtype=torch.float64)

    return compute


def invert_decoding(target_value: float, decode: Decode, guess: float, low: float, high: float) -> float:
    """Find the encoded number between `low` and `high` that `decode`, which rises, turns into `target_value`; or `guess` if near."""

    def value(number: float) -> float:
        return float(np.asarray(decode(np.array([number])), np.float64)[0])

    if np.isclose(value(guess), target_value, rtol=1e-12, atol=0):
        return guess
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if value(middle) < target_value else (low, middle)
    return low if abs(value(low) - target_value) < abs(value(high) - target_value) else high


class Frequencies(TrivialPredictor):
    """How often each of some values occurs in a column of the training split, as logarithms of their shares plus one occurrence each."""

    def __init__(self, name: str, column: str, count: int, first: int = 0) -> None:
        """Values below `first` are not counted."""
        self.name, self._column, self._first = name, column, first
        self.counts = np.zeros(count, np.int64)

    def fit(self, batch: Batch) -> None:
        values = batch[self._column].numpy().astype(np.int64).reshape(-1)
        self.counts += np.bincount(values[values >= self._first], minlength=len(self.counts))

    def logarithms(self) -> Tensor:
        return torch.from_numpy(np.log((self.counts + 1) / (self.counts.sum() + len(self.counts))))

    def output(self, batch: Batch) -> Tensor:
        return self.logarithms().expand(row_count(batch), -1)
