"""Details of forecasts for the page of a run."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipelines.applications.forecasting.futures import Future
from pipelines.config import TaskSettings
from pipelines.tasks.data import Batch, Data
from pipelines.tasks.details.base import Columns, Details, row_numbers
from pipelines.tasks.details.parts import SelectedRows, sampling_keys

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
