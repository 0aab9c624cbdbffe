"""The task `forecasting`: predicts the next steps of several series from their history, by linear layers or a transformer over patches of
it.

The feature is the history, shape (steps, series) per row; the target is the future, shape (horizon, series), in the same units, or
quantiles of it. Other features are what is known of the row beforehand, as of its series or its time.
"""

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchmetrics import Metric, MetricCollection

from pipelines.applications.forecasting.forecast_details import ForecastDetails
from pipelines.applications.forecasting.futures import Future, FutureQuantiles
from pipelines.applications.forecasting.naive_forecasts import ErrorQuantiles, RepeatLast, RepeatSeason
from pipelines.applications.forecasting.settings import ForecastingSettings as Settings
from pipelines.config import TaskSettings
from pipelines.config.messages.words import name_list
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.base import Data, Task
from pipelines.tasks.data import Batch
from pipelines.tasks.details import Details
from pipelines.tasks.metrics.table import Monitor
from pipelines.tasks.tabular import FeatureVector, vector_width
from pipelines.tasks.trivial import TrivialPredictor

_SMALLEST_SCALE, _SMALLEST_VARIANCE = 1e-10, 1e-5
"""Added to a learned scale, which may become 0, and to the variance of a history, which may be constant."""


class Forecasting(Task):
    settings: Settings

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        """Raises ConfigError if the columns are not a history and a future of the same series, and values beside them."""
        super().__init__(settings, data)
        future = data.target
        histories = [
            column for column in data.features if len(column.shape) == 2 and not column.counted and column.shape[1:] == future.shape[1:]
        ]
        covariates = tuple(column for column in data.features if column not in histories)
        are_values = not any(len(column.shape) > 1 or column.counted for column in covariates)
        if len(future.shape) != 2 or len(histories) != 1 or not are_values:
            columns_text = name_list([f"{column.name} {column.shape}" for column in data.columns])
            raise ConfigError(
                "task.kind is forecasting, which takes one feature of shape (steps, series) and a target of shape (horizon, series), "
                f"beside numbers, categories and vectors of the row, but got {columns_text}"
            )
        self.history, self.future, self.covariates = histories[0], future, covariates
        if self.settings.network == "transformer" and self.settings.patch > self.history.shape[0]:
            raise ConfigError(
                f"task.patch is {self.settings.patch}, but {self.history.name} has {self.history.shape[0]} steps; set it to "
                f"{self.history.shape[0]} or less, or make source.windows.history longer"
            )
        self.target = FutureQuantiles(data, settings.quantiles) if settings.loss == "quantiles" else Future(data)
        self.minimised = self.target.minimised

    @property
    def monitor(self) -> Monitor:
        return self.target.monitor

    def model(self) -> nn.Module:
        settings, column = self.settings, self.history.name
        (steps, series), outputs = self.history.shape, self.future.shape[0] * max(self.target.quantiles, 1)
        network: nn.Module
        if settings.network == "transformer":
            network = PatchTransformer(
                column, steps, outputs, settings.patch, settings.layers, settings.width, settings.heads, settings.dropout
            )
        elif settings.network == "dlinear":
            network = DLinear(column, steps, outputs, settings.kernel)
        else:
            network = LinearForecast(column, steps, outputs)
        if settings.normalize != "none":
            network = InstanceNormalized(network, column, series, settings.normalize == "deviation")
        if self.covariates:
            network = WithCovariates(network, self.covariates, outputs, series)
        return ForecastQuantiles(network, settings.quantiles) if self.target.quantiles else network

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
        predictors: list[TrivialPredictor] = [RepeatLast(history, future.shape[0], metrics, self.target.quantiles)]
        if steps > 1:
            predictors.append(RepeatSeason(history, future.name, steps, metrics, self.target.quantiles))
        if self.target.quantiles:
            last = RepeatLast(history, future.shape[0], ())
            predictors.append(ErrorQuantiles(last, future, self.settings.quantiles, ("pinball", "loss")))
        return predictors

    def details(self) -> Details:
        return ForecastDetails(self.settings, self.data, self.target, self.history.name)

    def prediction_form(self) -> dict[str, Any]:
        return self.target.prediction_form()


class DLinear(nn.Module):
    """Two linear maps over time, one for the moving average and one for the remainder; all series share them.

    All weights are initialised to 1 / steps, as in the code of the authors.
    """

    def __init__(self, column: str, steps: int, horizon: int, kernel: int) -> None:
        super().__init__()
        self.column = column
        self.kernel = kernel
        self.trend = nn.Linear(steps, horizon)
        self.rest = nn.Linear(steps, horizon)
        for layer in (self.trend, self.rest):
            nn.init.constant_(layer.weight, 1 / steps)

    def forward(self, batch: Batch) -> Tensor:
        """Forecasts of shape (rows, horizon, series)."""
        history = batch[self.column].float().transpose(1, 2)
        half = self.kernel // 2
        # The first and the last value are repeated at the ends, so that the average has the same length.
        trend = functional.avg_pool1d(functional.pad(history, (half, half), mode="replicate"), self.kernel, stride=1)
        return (self.trend(trend) + self.rest(history - trend)).transpose(1, 2)


class LinearForecast(nn.Module):
    """One linear map over time, which all series share. All weights are initialised to 1 / steps."""

    def __init__(self, column: str, steps: int, horizon: int) -> None:
        super().__init__()
        self.column = column
        self.future = nn.Linear(steps, horizon)
        nn.init.constant_(self.future.weight, 1 / steps)

    def forward(self, batch: Batch) -> Tensor:
        """Forecasts of shape (rows, horizon, series)."""
        return self.future(batch[self.column].float().transpose(1, 2)).transpose(1, 2)


class InstanceNormalized(nn.Module):
    """Another network, between a normalisation of every history by itself and its inverse: a level that drifts is no matter for it.

    With `deviation`, a history loses its mean and its deviation, and gets a learned scale and shift for each series, as in RevIN; else it
    loses its last value.
    """

    def __init__(self, network: nn.Module, column: str, series: int, deviation: bool) -> None:
        super().__init__()
        self.network, self.column, self.deviation = network, column, deviation
        if deviation:
            self.scale, self.shift = nn.Parameter(torch.ones(series)), nn.Parameter(torch.zeros(series))

    def forward(self, batch: Batch) -> Tensor:
        column, history = self.column, batch[self.column].float()
        if not self.deviation:
            last = history[:, -1:]
            return self.network({column: history - last}) + last
        mean = history.mean(1, keepdim=True)
        deviation = (history.var(1, keepdim=True, correction=0) + _SMALLEST_VARIANCE).sqrt()
        forecast = self.network({column: (history - mean) / deviation * self.scale + self.shift})
        return (forecast - self.shift) / (self.scale + _SMALLEST_SCALE) * deviation + mean


class WithCovariates(nn.Module):
    """Another network, to whose forecast a linear map of the row's other features is added, for each step and series.

    Categories are embedded. It is the linear part of the covariates of TiDE (Das et al. 2023, "Long-term forecasting with TiDE: time-series
    dense encoder"), whose dense layers also see the history; here the features shift a forecast alike after every history. The map is
    initialised to 0, so that a new model forecasts as without."""

    def __init__(self, network: nn.Module, features: Sequence[TensorColumn], steps: int, series: int) -> None:
        """`steps` are those of the network's forecast, of all quantiles together."""
        super().__init__()
        self.network, self.features, self.shape = network, FeatureVector(features), (steps, series)
        self.shift = nn.Linear(vector_width(features), steps * series)
        nn.init.zeros_(self.shift.weight)
        nn.init.zeros_(self.shift.bias)

    def forward(self, batch: Batch) -> Tensor:
        """Forecasts of shape (rows, steps, series)."""
        shifts: Tensor = self.shift(self.features(batch)).unflatten(1, self.shape)
        return self.network(batch) + shifts


class ForecastQuantiles(nn.Module):
    """Another network, whose forecasts are those of several quantiles one after the other, and a learned level of each quantile.

    The levels are initialised to the quantiles of the standard normal distribution, as encoded series have mean 0 and deviation 1. From
    equal quantiles, a falling learning rate ends before the outer ones are apart: of ETTh1 with `network: linear`, 54 % of the test were
    between the quantiles 0.1 and 0.9, with a pinball loss of 0.148; with these levels 87 %, and 0.138."""

    def __init__(self, network: nn.Module, shares: Sequence[float]) -> None:
        super().__init__()
        self.network = network
        levels = torch.tensor([NormalDist().inv_cdf(share) for share in shares])
        self.levels = nn.Parameter(levels.view(-1, 1, 1))

    def forward(self, batch: Batch) -> Tensor:
        """Forecasts of shape (rows, quantiles, horizon, series)."""
        forecasts: Tensor = self.network(batch).unflatten(1, (len(self.levels), -1))
        return forecasts + self.levels


class PatchTransformer(nn.Module):
    """A token is a patch of a history, which overlaps the next by half. All tokens attend to each other, and a linear map of all of them is
    the forecast."""

    def __init__(self, column: str, steps: int, horizon: int, patch: int, layers: int, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.column, self.patch, self.stride = column, patch, patch // 2
        tokens = (steps - patch) // self.stride + 2
        self.embedding = nn.Linear(patch, width)
        self.places = nn.Parameter(0.02 * torch.randn(tokens, width))
        self.blocks = nn.Sequential(*[PatchBlock(width, heads, dropout) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.future = nn.Linear(tokens * width, horizon)

    def forward(self, batch: Batch) -> Tensor:
        """Forecasts of shape (rows, horizon, series)."""
        history = batch[self.column].float().transpose(1, 2)
        # The last value is repeated, so that the last patch ends with the history or after it.
        patches = functional.pad(history, (0, self.stride), mode="replicate").unfold(2, self.patch, self.stride)
        tokens = self.dropout(self.embedding(patches) + self.places).flatten(0, 1)
        hidden = self.norm(self.blocks(tokens)).flatten(1)
        return self.future(self.dropout(hidden)).unflatten(0, (-1, history.shape[1])).transpose(1, 2)


class PatchBlock(nn.Module):
    """Self-attention and two linear layers, each with a layer norm before it and added to its input."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.layers_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.outputs = nn.Linear(width, width)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens of shape (series, tokens, width)."""
        queries, keys, values = self.qkv(self.attention_norm(tokens)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(queries, keys, values).transpose(1, 2).flatten(2)
        tokens = tokens + self.dropout(self.outputs(attended))
        return tokens + self.dropout(self.layers(self.layers_norm(tokens)))
