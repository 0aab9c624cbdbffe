"""The task `forecasting`: predicts the next steps of several series from their history, by a network of `forecast_networks`.

The feature is the history, shape (steps, series) per row; the target is the future, shape (horizon, series), in the same units, or
quantiles of it. Other features are what is known of the row beforehand, as of its series or its time.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection

from pipelines.applications.forecasting.details import ForecastDetails
from pipelines.applications.forecasting.futures import Future, future_kind
from pipelines.applications.forecasting.networks import (
    DLinear,
    ForecastQuantiles,
    InstanceNormalized,
    LinearForecast,
    PatchTransformer,
    WithCovariates,
)
from pipelines.applications.forecasting.settings import ForecastingSettings as Settings
from pipelines.applications.forecasting.simple_forecasts import AsQuantiles, ErrorQuantiles, RepeatLast, RepeatSeason
from pipelines.config import TaskSettings
from pipelines.config.messages.counting import name_list
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch, Data, Task
from pipelines.tasks.details import Details
from pipelines.tasks.metrics.table import Monitor
from pipelines.tasks.trivial import TrivialPredictor


class Forecasting(Task):
    settings: Settings

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        """Raises ConfigError if the columns are not a history and a future of the same series, and values beside them."""
        super().__init__(settings, data)
        self.history, self.future = history_column(data), data.target
        self.covariates = tuple(column for column in data.features if column is not self.history)
        if any(len(column.shape) > 1 or column.counted for column in self.covariates):
            raise _not_a_forecast(data)
        if self.settings.network == "transformer" and self.settings.patch > self.history.shape[0]:
            raise ConfigError(
                f"task.patch is {self.settings.patch}, but {self.history.name} has {self.history.shape[0]} steps; set it to "
                f"{self.history.shape[0]} or less, or make source.windows.history longer"
            )
        self.target = future_kind(data, settings)
        self.minimised = self.target.minimised

    @property
    def monitor(self) -> Monitor:
        return self.target.monitor

    def model(self) -> nn.Module:
        settings, column = self.settings, self.history.name
        (steps, series), outputs = self.history.shape, self.future.shape[0] * max(self.target.quantiles, 1)
        network = self._network(steps, outputs)
        if settings.normalize != "none":
            network = InstanceNormalized(network, column, series, settings.normalize == "deviation")
        if self.covariates:
            network = WithCovariates(network, self.covariates, outputs, series)
        return ForecastQuantiles(network, settings.quantiles) if self.target.quantiles else network

    def _network(self, steps: int, outputs: int) -> nn.Module:
        settings, column = self.settings, self.history.name
        if settings.network == "transformer":
            return PatchTransformer(
                column, steps, outputs, settings.patch, settings.layers, settings.width, settings.heads, settings.dropout
            )
        return DLinear(column, steps, outputs, settings.kernel) if settings.network == "dlinear" else LinearForecast(column, steps, outputs)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        losses = self.target.losses(model(batch).float(), batch[self.future.name])
        return losses.sum(), losses.new_full((), len(losses))

    def metrics(self) -> MetricCollection:
        """Errors in encoded units, in which published results are given. `repeat_last_…` are errors of the forecast that repeats the last
        value."""
        baseline = {f"repeat_last_{name}": metric for name, metric in Future(self.data).usual_metrics().items()}
        metrics: dict[str, Metric | MetricCollection] = {**self.target.usual_metrics(), **baseline}
        return MetricCollection(metrics, compute_groups=False).set_dtype(torch.float64)

    def update(self, metrics: MetricCollection, output: Tensor, batch: Batch) -> None:
        true = batch[self.future.name].cpu().double()
        last = batch[self.history.name][:, -1:].cpu().double().expand_as(true)
        self.target.update(metrics, output.detach().cpu().double(), true)
        for name in ("mse", "mae"):
            metrics[f"repeat_last_{name}"].update(last.reshape(-1), true.reshape(-1))

    def trivial_predictors(self) -> Sequence[TrivialPredictor]:
        (steps, _), history, future, metrics = self.history.shape, self.history.name, self.future, ("mse", "mae")
        repeated: list[TrivialPredictor] = [RepeatLast(history, future.shape[0], metrics)]
        if steps > 1:
            repeated.append(RepeatSeason(history, future.name, steps, metrics))
        if not self.target.quantiles:
            return repeated
        spread = ErrorQuantiles(RepeatLast(history, future.shape[0], ()), future, self.settings.quantiles, ("pinball", "loss"))
        return [*(AsQuantiles(predictor, self.target.quantiles) for predictor in repeated), spread]

    def details(self) -> Details:
        return ForecastDetails(self.settings, self.data, self.target, self.history.name)

    def prediction_form(self) -> dict[str, Any]:
        return self.target.prediction_form()


def history_column(data: Data) -> TensorColumn:
    """The feature of shape (steps, series) whose series are those of the target. Raises ConfigError if there is not one."""
    target = data.target.shape
    histories = [column for column in data.features if len(column.shape) == 2 and not column.counted and column.shape[1:] == target[1:]]
    if len(target) != 2 or len(histories) != 1:
        raise _not_a_forecast(data)
    return histories[0]


def _not_a_forecast(data: Data) -> ConfigError:
    shapes = name_list([f"{column.name} {column.shape}" for column in data.columns])
    return ConfigError(
        "task.kind is forecasting, which takes one feature of shape (steps, series) and a target of shape (horizon, series), beside "
        f"numbers, categories and vectors of the row, but got {shapes}"
    )
