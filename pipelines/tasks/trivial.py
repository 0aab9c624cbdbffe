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
_SEASON_ROWS, _MOST_SEASON_ROWS = 64, 512
"""Rows of a batch that the season is fitted on, evenly spread, and of all batches: every possible season is tried on each."""


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


class Constant(TrivialPredictor):
    """A predictor with one output for all rows, shape (outputs,)."""

    reads_rows = False

    def __init__(self, name: str, values: Sequence[float], stands_for: tuple[str, ...] = ()) -> None:
        self.name, self.stands_for = name, stands_for
        self.values = torch.tensor(values, dtype=torch.float64)

    def output(self, batch: Batch) -> Tensor:
        return self.values.expand(row_count(batch), -1)


class ClassShares(TrivialPredictor):
    """The share of each class in the training split: one logit of the second of two classes, or a logit for each."""

    name = "class shares"

    def __init__(
        self,
        target: str,
        classes: int,
        counts: Sequence[int],
        outputs: int,
        weights: Sequence[float] = (),
        stands_for: tuple[str, ...] = (),
        row_weight: str = "",
    ) -> None:
        """`counts` are the rows of each class, if they are known. With weights of classes, or a column `row_weight`, the shares are of
        the weight."""
        self.stands_for = stands_for
        self._target, self._outputs, self._weights = target, outputs, np.array(weights or [1.0] * classes)
        self._row_weight = row_weight
        self.reads_rows = bool(row_weight) or len(counts) != classes or not sum(counts)
        self._counts = np.zeros(classes) if self.reads_rows else np.array(counts, np.float64)

    def fit(self, batch: Batch) -> None:
        if self.reads_rows:
            weights = batch[self._row_weight].double().numpy() if self._row_weight else None
            self._counts += np.bincount(batch[self._target].numpy().astype(np.int64), weights, minlength=len(self._counts))

    def output(self, batch: Batch) -> Tensor:
        """A class without rows or weight has half a row's share, since no logit is −∞."""
        weighed = torch.from_numpy(np.maximum(self._counts, 0.5) * np.maximum(self._weights, 1e-12))
        shares = weighed / weighed.sum()
        logits = (shares[1:].log() - shares[:1].log()) if self._outputs == 1 else shares.log()
        return logits.expand(row_count(batch), -1)


class Centre(TrivialPredictor):
    """The mean or the median of a target that is a number, in the units of the query or as it is encoded."""

    def __init__(
        self, name: str, centre: Callable[[np.ndarray], np.floating], target: str, stands_for: tuple[str, ...], decode: Decode | None = None
    ) -> None:
        """With `decode`, the encoded value is sought whose value in the units of the query is the centre there."""
        self.name, self.stands_for = name, stands_for
        self._centre, self._target, self._decode = centre, target, decode
        self._parts: list[np.ndarray] = []
        self._value = 0.0

    def fit(self, batch: Batch) -> None:
        self._parts.append(batch[self._target].numpy().astype(np.float64))

    def finish(self) -> None:
        values = np.concatenate(self._parts) if self._parts else np.zeros(1)
        self._value = float(self._centre(values))
        if self._decode is not None:
            target_value = float(self._centre(np.asarray(self._decode(values), np.float64)))
            self._value = invert_decoding(target_value, self._decode, self._value, float(values.min()), float(values.max()))
        self._parts, self._decode = [], None

    def output(self, batch: Batch) -> Tensor:
        return torch.full((row_count(batch), 1), self._value, dtype=torch.float64)


class Mean(TrivialPredictor):
    """The mean of each entry of the encoded target, over rows or over their weights."""

    name = "mean"

    def __init__(self, target: str, stands_for: tuple[str, ...], row_weight: str = "") -> None:
        self.stands_for, self._target, self._row_weight = stands_for, target, row_weight
        self._total, self._weight = np.zeros(1), 0.0

    def fit(self, batch: Batch) -> None:
        values = batch[self._target].double().numpy().reshape(row_count(batch), -1)
        weights = batch[self._row_weight].double().numpy() if self._row_weight else np.ones(len(values))
        self._total, self._weight = self._total + weights @ values, self._weight + weights.sum()

    def output(self, batch: Batch) -> Tensor:
        mean = self._total / self._weight if self._weight else self._total
        return torch.from_numpy(mean).expand(row_count(batch), -1)


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


class RepeatLast(TrivialPredictor):
    """A forecast that repeats the last value of the history, shape (steps, series) per row."""

    name = "repeat last value"
    reads_rows = False

    def __init__(self, history: str, horizon: int, stands_for: tuple[str, ...]) -> None:
        self._history, self._horizon, self.stands_for = history, horizon, stands_for

    def output(self, batch: Batch) -> Tensor:
        return batch[self._history].cpu().double()[:, -1:].expand(-1, self._horizon, -1)


class RepeatSeason(TrivialPredictor):
    """A forecast that repeats the last season. Of all that fit into the history, it is the one with the least squared error in training."""

    def __init__(self, history: str, future: str, steps: int, stands_for: tuple[str, ...]) -> None:
        self._history, self._future, self.stands_for = history, future, stands_for
        self._seasons = range(2, steps + 1)
        self._errors, self._rows = np.zeros(len(self._seasons)), 0
        self.season = 1

    def fit(self, batch: Batch) -> None:
        if self._rows >= _MOST_SEASON_ROWS:
            return
        stride = -(-row_count(batch) // _SEASON_ROWS)
        # Not with torch, whose threads wait for each other longer than such small sums take.
        history, future = (batch[name][::stride].double().numpy() for name in (self._history, self._future))
        self._rows += len(history)
        for place, season in enumerate(self._seasons):
            self._errors[place] += np.square(history[:, _places(history.shape[1], season, future.shape[1])] - future).sum()

    def finish(self) -> None:
        if len(self._errors):
            self.season = self._seasons[int(self._errors.argmin())]
        self.name = f"repeat last {self.season} steps"

    def output(self, batch: Batch) -> Tensor:
        history = batch[self._history].cpu().double()
        return history[:, torch.from_numpy(_places(history.shape[1], self.season, batch[self._future].shape[1]))]


def _places(steps: int, season: int, horizon: int) -> np.ndarray:
    """Which steps of the history a forecast of the last season repeats, shape (horizon,)."""
    return steps - season + np.arange(horizon) % season


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
