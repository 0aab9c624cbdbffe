"""Trivial forecasts: the last value or the last season of the history again."""

import numpy as np
import torch
from torch import Tensor

from pipelines.tasks.data import Batch, row_count
from pipelines.tasks.trivial import TrivialPredictor

_SEASON_ROWS, _MOST_SEASON_ROWS = 64, 512
"""Rows of a batch that the season is fitted on, evenly spread, and of all batches: every possible season is tried on each."""


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
