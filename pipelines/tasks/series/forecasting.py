"""The task `forecasting`: predicts the next steps of several series from their history, by a network of `forecast_networks`.

The feature is the history, shape (steps, series) per row; the target is the future, shape (horizon, series), in the same units.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics import MeanAbsoluteError, MeanSquaredError, MetricCollection

from pipelines.config import TaskSettings
from pipelines.config.messages.did_you_mean import name_list
from pipelines.config.tasks.task import ForecastingSettings as Settings
from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch, Data, Task
from pipelines.tasks.details import Details, ForecastDetails
from pipelines.tasks.metrics.table import METRICS
from pipelines.tasks.series.forecast_networks import DLinear, InstanceNormalized, LinearForecast
from pipelines.tasks.series.trivial_forecasts import RepeatLast, RepeatSeason
from pipelines.tasks.trivial import TrivialPredictor


class Forecasting(Task):
    settings: Settings
    monitor = METRICS["mse"].monitor
    minimised = "mse"

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        """Raises ConfigError if the columns are not a history and a future of the same series."""
        super().__init__(settings, data)
        shapes = {column.name: column.shape for column in data.columns}
        if len(shapes) != 2 or any(len(shape) != 2 for shape in shapes.values()) or len({shape[-1] for shape in shapes.values()}) != 1:
            shapes_text = name_list([f"{name} {shape}" for name, shape in shapes.items()])
            raise ConfigError(
                "task.kind is forecasting, which takes one feature of shape (steps, series) and a target of shape (horizon, series), "
                f"but got {shapes_text}"
            )
        self.history, self.future = data.features[0], data.target

    def model(self) -> nn.Module:
        settings, column = self.settings, self.history.name
        (steps, series), horizon = self.history.shape, self.future.shape[0]
        network = (
            DLinear(column, steps, horizon, settings.kernel) if settings.network == "dlinear" else LinearForecast(column, steps, horizon)
        )
        return network if settings.normalize == "none" else InstanceNormalized(network, series, settings.normalize == "deviation")

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        losses = (model(batch).float() - batch[self.future.name]).square().flatten(1).mean(1)
        return losses.sum(), losses.new_full((), len(losses))

    def metrics(self) -> MetricCollection:
        """Errors in encoded units, in which published results are given. `repeat_last_…` are errors of the forecast that repeats the last
        value."""
        errors = {"mse": MeanSquaredError(), "mae": MeanAbsoluteError()}
        baseline = {f"repeat_last_{name}": metric.clone() for name, metric in errors.items()}
        return MetricCollection({**errors, **baseline}, compute_groups=False).set_dtype(torch.float64)

    def update(self, metrics: MetricCollection, output: Tensor, batch: Batch) -> None:
        true = batch[self.future.name].cpu().double()
        last = batch[self.history.name][:, -1:].cpu().double().expand_as(true)
        for prefix, forecast in (("", output.detach().cpu().double()), ("repeat_last_", last)):
            for name in ("mse", "mae"):
                metrics[prefix + name].update(forecast.reshape(-1), true.reshape(-1))

    def trivial_predictors(self) -> Sequence[TrivialPredictor]:
        history, future, metrics = self.history, self.future, ("mse", "mae")
        repeated = RepeatLast(history.name, future.shape[0], metrics)
        return [repeated, RepeatSeason(history.name, future.name, history.shape[0], metrics)] if history.shape[0] > 1 else [repeated]

    def details(self) -> Details:
        return ForecastDetails(self.settings, self.data)

    def predict(self, output: Tensor) -> dict[str, Sequence]:
        """The forecast in the units of the query, shape (horizon, series)."""
        forecasts = np.asarray(self.data.decode(output.detach().cpu().double().numpy()))
        return {"prediction": forecasts.tolist()}

    def prediction_form(self) -> dict[str, Any]:
        return self.data.quantity_form("forecast")
