"""Forecasts without a network, to compare with: the last value or the last season again, also with quantiles of their errors."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pipelines.data.versions.schema import TensorColumn
from pipelines.tasks.data import Batch, row_count
from pipelines.tasks.trivial import TrivialPredictor

_SEASON_ROWS, _MOST_SEASON_ROWS = 64, 512
"""Rows of a batch that the season is fitted on, evenly spread, and of all batches: every possible season is tried on each."""
_MOST_ERRORS = 2**22
"""Numbers that are kept for the quantiles of errors, 32 MB."""


class RepeatLast(TrivialPredictor):
    """A forecast that repeats the last value of the history, shape (steps, series) per row; with `quantiles`, for each of them."""

    name = "repeat last value"
    reads_rows = False

    def __init__(self, history: str, horizon: int, stands_for: tuple[str, ...], quantiles: int = 0) -> None:
        self._history, self._horizon, self.stands_for, self._quantiles = history, horizon, stands_for, quantiles

    def output(self, batch: Batch) -> Tensor:
        last = batch[self._history].cpu().double()[:, -1:]
        return _repeat_by_quantile(last.expand(-1, self._horizon, -1), self._quantiles)


class RepeatSeason(TrivialPredictor):
    """A forecast that repeats the last season. Of all that fit into the history, it is the one with the least squared error in training."""

    name = "repeat last season"

    def __init__(self, history: str, future: str, steps: int, stands_for: tuple[str, ...], quantiles: int = 0) -> None:
        self._history, self._future, self.stands_for, self._quantiles = history, future, stands_for, quantiles
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
        places = torch.from_numpy(_places(history.shape[1], self.season, batch[self._future].shape[1]))
        return _repeat_by_quantile(history[:, places], self._quantiles)


def _repeat_by_quantile(forecast: Tensor, quantiles: int) -> Tensor:
    """A forecast as one for every quantile, of which it is the median; as it is without any."""
    return forecast.unsqueeze(1).expand(-1, quantiles, -1, -1) if quantiles else forecast


def _places(steps: int, season: int, horizon: int) -> np.ndarray:
    """Which steps of the history a forecast of the last season repeats, shape (horizon,)."""
    return steps - season + np.arange(horizon) % season


class ErrorQuantiles(TrivialPredictor):
    """Another forecast, which reads no rows, and the quantiles of its errors in training, for each step and series, added to it.

    These are the intervals of a naive forecast from its residuals, without an assumption about their distribution (Hyndman and
    Athanasopoulos 2021, Forecasting: principles and practice, section 5.5)."""

    def __init__(self, forecast: TrivialPredictor, future: TensorColumn, shares: Sequence[float], stands_for: tuple[str, ...]) -> None:
        self.name, self.stands_for = f"{forecast.name}, with its errors", stands_for
        self._forecast, self._future, self._shares = forecast, future, tuple(shares)
        self._errors: list[np.ndarray] = []
        self._rows = 0
        self._quantiles = torch.zeros(len(shares), *future.shape, dtype=torch.float64)

    def fit(self, batch: Batch) -> None:
        most_rows = max(1, min(_MOST_SEASON_ROWS, _MOST_ERRORS // (self._future.shape[0] * self._future.shape[1])))
        if self._rows >= most_rows:
            return
        stride = -(-row_count(batch) // min(_SEASON_ROWS, most_rows))
        errors = (batch[self._future.name].double() - self._forecast.output(batch))[::stride].numpy()
        self._errors.append(errors)
        self._rows += len(errors)

    def finish(self) -> None:
        if self._errors:
            self._quantiles = torch.from_numpy(np.quantile(np.concatenate(self._errors), self._shares, axis=0))
        self._errors = []

    def output(self, batch: Batch) -> Tensor:
        return self._forecast.output(batch).unsqueeze(1) + self._quantiles
