"""The target of a forecast, shape (horizon, series) per row, as one value at each step or as quantiles of it: its losses and metrics,
forecasts without a network to compare with, and details for the page of a run.

Metrics are in encoded units, in which published results are given.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchmetrics import MeanAbsoluteError, MeanSquaredError, Metric, MetricCollection

from pipelines.config import TaskSettings
from pipelines.data.versions.schema import TensorColumn
from pipelines.tasks.data import Batch, Data, row_count
from pipelines.tasks.details.base import Columns, Details, row_numbers
from pipelines.tasks.details.parts import SelectedRows, sampling_keys
from pipelines.tasks.metrics.accumulation import Loss
from pipelines.tasks.metrics.table import METRICS, Monitor
from pipelines.tasks.targets.distributions import QuantileLevels
from pipelines.tasks.trivial import TrivialPredictor


class Future:
    """One value at each step, with the squared error. Outputs of the model have shape (rows, horizon, series)."""

    monitor: Monitor = METRICS["mse"].monitor
    minimised: str = "mse"
    quantiles: int = 0
    """Quantiles of an output, on its second axis; without any it has no such axis."""

    def __init__(self, data: Data) -> None:
        self.data = data

    def losses(self, output: Tensor, true: Tensor) -> Tensor:
        """Loss of each row, shape (rows,), in encoded units."""
        return (output - true).square().flatten(1).mean(1)

    def usual_metrics(self) -> dict[str, Metric]:
        return {"mse": MeanSquaredError(), "mae": MeanAbsoluteError()}

    def update(self, metrics: MetricCollection, output: Tensor, true: Tensor) -> None:
        """Add rows, given their float64 output and target on the CPU, to the metrics of `usual_metrics`."""
        for name in ("mse", "mae"):
            metrics[name].update(self.forecast(output).reshape(-1), true.reshape(-1))

    def order_quantiles(self, output: Tensor) -> Tensor:
        """Outputs as they are predicted: with quantiles in ascending order."""
        return output

    def forecast(self, output: Tensor) -> Tensor:
        """The forecast that stands for the value, shape (rows, horizon, series), as encoded."""
        return output

    def bounds(self, output: Tensor) -> dict[str, Tensor]:
        """`low` and `high`, shapes as those of a forecast, as encoded: the outermost quantiles. Empty if there are not two."""
        return {}

    def prediction_form(self) -> dict[str, Any]:
        return self.data.form_to_decode("array")


class FutureQuantiles(Future):
    """The quantiles of `task.quantiles` at each step, with the pinball loss.

    Outputs have shape (rows, quantiles, horizon, series). The forecast is the quantile nearest to the median."""

    monitor = METRICS["pinball"].monitor
    minimised = "loss"

    def __init__(self, data: Data, shares: Sequence[float]) -> None:
        super().__init__(data)
        self._levels = QuantileLevels(shares)
        self.quantiles = len(shares)

    def losses(self, output: Tensor, true: Tensor) -> Tensor:
        return self._levels.pinball(output, true).flatten(1).mean(1)

    def usual_metrics(self) -> dict[str, Metric]:
        """`pinball` is of the quantiles as they are predicted, in ascending order, and `loss` of the outputs as they are."""
        return {**self._levels.usual_metrics(), **super().usual_metrics(), "loss": Loss("no rows")}

    def update(self, metrics: MetricCollection, output: Tensor, true: Tensor) -> None:
        super().update(metrics, output, true)
        self._levels.update(metrics, self.order_quantiles(output), true)
        metrics["loss"].update(self.losses(output, true))

    def order_quantiles(self, output: Tensor) -> Tensor:
        return output.sort(1).values

    def forecast(self, output: Tensor) -> Tensor:
        return self.order_quantiles(output)[:, self._levels.middle]

    def bounds(self, output: Tensor) -> dict[str, Tensor]:
        ascending = self.order_quantiles(output)
        return {"low": ascending[:, 0], "high": ascending[:, -1]} if self.quantiles > 1 else {}

    def prediction_form(self) -> dict[str, Any]:
        return self._levels.prediction_form(self.data)


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


FORECASTS, SERIES = 4, 4
"""Forecasts that are kept, of the first so many series of the row."""


class ForecastDetails(Details):
    """Errors are in encoded units, as the metrics are; forecasts in the units of the query. Of quantiles, errors are those of the forecast
    that stands for the value, and forecasts have `low` and `high`, the outermost."""

    kind = "forecast"

    def __init__(self, settings: TaskSettings, data: Data, future: Future, history: str) -> None:
        super().__init__(settings, data)
        self._future, self._history = future, history
        self.sample, self.worst = SelectedRows(FORECASTS), SelectedRows(FORECASTS)

    def update(self, output: Tensor, batch: Batch) -> None:
        true, output = batch[self.data.target.name].cpu().double(), output.double()
        forecast, bounds = self._future.forecast(output), self._future.bounds(output)
        error = (forecast - true).numpy()
        last = batch[self._history][:, -1:].cpu().double()
        rows, losses = row_numbers(batch), self._future.losses(self._future.order_quantiles(output), true).numpy()
        for name, errors in (("absolute", np.abs(error)), ("squared", error**2), ("repeated", (last - true).square().numpy())):
            self.sums.add(name, errors.sum((0, 2)))
        self.sums.add("rows", np.array(len(true)))
        self.slices.update(batch, {"loss": losses})
        outcomes = {"mse": np.square(error).mean((1, 2)), "mae": np.abs(error).mean((1, 2)), self._future.monitor[0]: losses}
        self._offer(self.outcomes, batch, outcomes)

        def values(places: np.ndarray) -> dict[str, np.ndarray]:
            index = torch.from_numpy(places)
            history = batch[self._history][index.to(batch[self._history].device)].cpu().numpy()
            decoded = {
                "history": self.data.raw(self._history, history),
                "true": self.data.decode(true[index].numpy()),
                **{name: self.data.decode(value[index].numpy()) for name, value in {"predicted": forecast, **bounds}.items()},
            }
            return {name: np.asarray(table, np.float32)[..., :SERIES] for name, table in decoded.items()}

        self.sample.offer(sampling_keys(rows), rows, values)
        self.worst.offer(-np.nan_to_num(losses, nan=np.inf), rows, values)

    def tables(self) -> dict[str, Columns]:
        steps: Columns = {}
        sums = self.sums.arrays
        if sums:
            values = int(sums["rows"]) * self.data.target.shape[1]
            means = {name: (sums[name] / values).tolist() for name in ("absolute", "squared", "repeated")}
            steps = {"step": list(range(1, len(sums["squared"]) + 1)), **means}
        return {"horizon": steps, "forecasts": _time_table(self.sample), "worst_forecasts": _time_table(self.worst)}

    def summary(self) -> dict[str, Any]:
        return {"target": self.data.target.name, "rows": int(self.sums.arrays.get("rows", 0))}


def _time_table(selected: SelectedRows) -> Columns:
    """One row for each row, series and time: `step` 0 is the last one of the history."""
    if not selected.columns:
        return {}
    forecasts = [name for name in ("predicted", "low", "high") if name in selected.columns]
    table: dict[str, list[Any]] = {name: [] for name in ("row", "series", "step", "true", *forecasts)}
    for place, row in enumerate(selected.rows.tolist()):
        history, true = (selected.columns[name][place] for name in ("history", "true"))
        for series in range(true.shape[1]):
            count = len(history) + len(true)
            table["row"] += [row] * count
            table["series"] += [series] * count
            table["step"] += range(1 - len(history), len(true) + 1)
            table["true"] += [*history[:, series].tolist(), *true[:, series].tolist()]
            for name in forecasts:
                table[name] += [*[None] * len(history), *selected.columns[name][place][:, series].tolist()]
    return table
