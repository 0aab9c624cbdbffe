"""Kinds of targets, which determine the number of outputs, the loss, the metrics and the form of predictions.

The usual ones follow from the target column alone: uint8 with cardinality 2 is a `BinaryTarget`, any other column with a cardinality a
`ClassTarget`, both in `classes`, and a column without one a `QuantityTarget`. Every model returns an output of shape (rows, outputs).
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from math import log
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torchmetrics import MeanAbsoluteError, MeanSquaredError, Metric, MetricCollection

from pipelines.config import TaskSettings
from pipelines.config.dataset.windows import lag_name
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.data import Data
from pipelines.tasks.metrics.accumulation import Determination, Loss, RelativeError
from pipelines.tasks.metrics.table import METRICS, Monitor, Predictions
from pipelines.tasks.trivial import ConstantFit, EarlierValue, TrivialPredictor, centre

_SCALES = ("identity", "minmax", "standardize")
"""Encoders that are a scale and a shift."""


class Target(ABC):
    """One kind of target. All metrics accept batches without rows, and are synchronised by torch.distributed."""

    monitor: Monitor
    outputs: int = 1
    """Width of the output of the model."""
    figures: ClassVar[Literal["classes", "quantity", ""]]
    """The details of an evaluation that there are of this kind; empty for none."""
    is_curved: ClassVar[bool] = True
    """Whether the loss has a second derivative that is not 0 nearly everywhere."""
    predictions: Predictions
    """What the predictions are, from which metrics are computed again."""
    further_names: ClassVar[str]
    """The metrics that `task.metrics` may name, in words."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        """A class with a loss of its own does not inherit `derivatives`, which are those of another loss."""
        super().__init_subclass__(**arguments)
        if "losses" in vars(cls) and "derivatives" not in vars(cls):
            cls.derivatives = Target.derivatives  # type: ignore[method-assign]

    def __init__(self, data: Data, settings: TaskSettings | None = None) -> None:
        """Raises ConfigError if `task.metrics` has one that is not defined for this kind."""
        self.data = data
        self.classes = data.classes or tuple(map(str, range(data.target.cardinality or 0)))
        self._further: dict[str, Callable[[], Metric]] = {}
        for name in settings.metrics if settings else ():
            factory = self.further_metric(name)
            if factory is None:
                raise ConfigError(
                    f"task.metrics has {name}, which is no further metric of the target {data.target.name}; name {self.further_names}, or "
                    "leave it out: some are always there"
                )
            self._further[name] = factory

    @abstractmethod
    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        """Loss of each row, shape (rows,), in encoded units."""

    def losses_with_smoothing(self, output: Tensor, target: Tensor, smoothing: float) -> Tensor:
        """As `losses`, of labels of which a share, `smoothing`, is spread over all classes alike (Szegedy et al. 2016). Of targets that
        `can_be_smoothed`."""
        raise NotImplementedError

    @property
    def can_be_smoothed(self) -> bool:
        return type(self).losses_with_smoothing is not Target.losses_with_smoothing

    def derivatives(self, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """First and second derivative of each row's loss by each of its outputs, both of shape (rows, outputs)."""
        output = output.detach().requires_grad_()
        (first,) = torch.autograd.grad(self.losses(output, target).sum(), output, create_graph=True)
        if not first.requires_grad:
            return first, torch.zeros_like(first)
        by_output = [torch.autograd.grad(first[:, number].sum(), output, retain_graph=True)[0][:, number] for number in range(self.outputs)]
        return first.detach(), torch.stack(by_output, 1)

    def average(self, outputs: Tensor, shares: Tensor | None = None) -> Tensor:
        """The output whose prediction is the mean of those of several models: shape (rows, outputs), from (rows, models, outputs).

        Models have `shares` in the mean, shape (models,), which sum to 1; by default equal ones."""
        return mean_of_models(outputs, shares)

    def metrics(self) -> MetricCollection:
        """Metrics that accumulate in float64 on the CPU, among them `loss`, which training minimises, and those of `task.metrics`."""
        further = {name: factory() for name, factory in self._further.items()}
        # In float64, because sums over millions of rows in float32 lose the digits that distinguish epochs.
        return MetricCollection({**self.usual_metrics(), **further}, compute_groups=False).set_dtype(torch.float64)

    def metrics_besides(self, *names: str) -> tuple[str, ...]:
        """The names of all metrics but these."""
        return tuple(str(name) for name in self.metrics() if name not in names)

    @abstractmethod
    def usual_metrics(self) -> dict[str, Metric]:
        """New metrics of this kind, by name."""

    def further_metric(self, name: str) -> Callable[[], Metric] | None:
        """Return a factory of a metric that `task.metrics` names; None if this kind has no metric of that name."""
        return None

    @abstractmethod
    def update(self, metrics: MetricCollection, output: Tensor, target: Tensor) -> None:
        """Add rows, given their float64 output and target on the CPU, to all metrics but `loss`."""

    @abstractmethod
    def trivial_predictors(self, row_weight: str, class_weights: Sequence[float]) -> list[TrivialPredictor]:
        """Predictors without features; for the loss with the weights of rows, in the column `row_weight`, and of classes, if there are."""

    @abstractmethod
    def prediction_form(self) -> dict[str, Any]:
        """As `Task.prediction_form`."""

    def output_to_explain(self, output: Tensor) -> Tensor:
        """The number of the output that a prediction follows from most, of each row: int64 of shape (rows,), from float64 output."""
        return torch.zeros(len(output), dtype=torch.int64)

    def probabilities(self, output: Tensor) -> Tensor:
        """Of a target with classes: that of each, shape (rows, classes), from float64 output."""
        raise NotImplementedError

    def quantities(self, output: Tensor) -> Tensor:
        """Of a target that is a number: the prediction in the units of the query, shape (rows,), from float64 output on the CPU."""
        raise NotImplementedError

    def raw(self, values: Tensor) -> Tensor:
        """Encoded values of the target in the units of the query, float64."""
        return torch.from_numpy(np.asarray(self.data.decode(values.double().numpy()), dtype=np.float64))


class QuantityTarget(Target):
    """A number. All metrics except the loss are in the units of the query."""

    monitor = METRICS["rmse"].monitor
    figures = "quantity"
    predictions = "quantity"
    further_names = "mape"

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        return (output[:, 0] - target.to(output.dtype)).square()

    def derivatives(self, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return 2 * (output - target.to(output.dtype)[:, None]), torch.full_like(output, 2)

    def further_metric(self, name: str) -> Callable[[], Metric] | None:
        return RelativeError if name == "mape" else None

    def usual_metrics(self) -> dict[str, Metric]:
        squares = {"rmse": MeanSquaredError(squared=False), "mae": MeanAbsoluteError(), "mse": MeanSquaredError()}
        return {**squares, "r2": Determination(), "loss": Loss()}

    def update(self, metrics: MetricCollection, output: Tensor, target: Tensor) -> None:
        predicted, true = self.quantities(output), self.raw(target)
        for name in ("rmse", "mae", "mse", "r2", *self._further):
            metrics[name].update(predicted, true)

    def trivial_predictors(self, row_weight: str, class_weights: Sequence[float]) -> list[TrivialPredictor]:
        """The mean, which for the loss is that of the weight, and for the absolute error the median."""
        column = self.data.target.name
        return [
            ConstantFit("mean", centre(np.mean, self.data.decode), column, ("rmse", "mse", "r2")),
            ConstantFit("median", centre(np.median), column, ("mae", *self._further)),
            ConstantFit("mean", mean_by_weight if row_weight else centre(np.mean), column, ("loss",), row_weight),
            *self._earlier_values(),
        ]

    def _earlier_values(self) -> Iterator[TrivialPredictor]:
        """The target's earlier values that features hold, as `source.windows.lags` makes them; of encoders that scale numbers."""
        fitted = self.data.encoders.get(self.data.target.name)
        if fitted is None or fitted.feature["encoder"] not in _SCALES or len(fitted.inputs) != 1:
            return
        first, second = np.asarray(self.data.decode(np.array([0.0, 1.0])), np.float64)
        names = {column.name for column in self.data.features}
        for feature, lagged in self.data.encoders.items():
            lag = re.fullmatch(re.escape(lag_name(fitted.inputs[0], 0))[:-1] + r"(\d+)", ", ".join(lagged.inputs))
            if lag and feature in names and lagged.feature["encoder"] in _SCALES:
                low, high = np.asarray(self.data.raw(feature, np.array([0.0, 1.0])), np.float64)
                scale, shift = float((high - low) / (second - first)), float((low - first) / (second - first))
                yield EarlierValue(int(lag[1]), feature, scale, shift, self.metrics_besides())

    def quantities(self, output: Tensor) -> Tensor:
        return self.raw(output[:, 0])

    def prediction_form(self) -> dict[str, Any]:
        return self.data.form_to_decode("quantity")


def mean_by_weight(values: np.ndarray, weights: np.ndarray) -> Tensor:
    """The mean of each entry over rows, shape (entries,), from values of shape (rows, …) and weights of shape (rows,)."""
    return torch.from_numpy(weights @ values.reshape(len(values), -1) / weights.sum())


def is_binary(column: TensorColumn) -> bool:
    """Whether the column has the values 0 and 1, which can be used as a number or as a class."""
    return column.dtype == "uint8" and column.cardinality == 2


def mean_of_models(values: Tensor, shares: Tensor | None = None) -> Tensor:
    """The mean over models, shape (rows, outputs), of values of shape (rows, models, outputs). `shares` are as in `Target.average`."""
    return values.mean(1) if shares is None else (values * shares.unsqueeze(1)).sum(1)


def log_mean_of_models(logs: Tensor, shares: Tensor | None = None) -> Tensor:
    """The logarithm of the mean over models of what has these logarithms; shapes and `shares` as in `mean_of_models`."""
    return logs.logsumexp(1) - log(logs.shape[1]) if shares is None else (logs + shares.log().unsqueeze(1)).logsumexp(1)


def average_logits(outputs: Tensor, shares: Tensor | None = None) -> Tensor:
    """The logits of the mean probabilities of several models: shape (rows, outputs), from (rows, models, outputs).

    By `softplus`, since exports write `logsigmoid` as the logarithm of a sigmoid, which onnxruntime makes infinite below −18."""
    log_first, log_second = -functional.softplus(-outputs), -functional.softplus(outputs)
    if shares is not None:
        log_shares = shares.log().unsqueeze(1)
        log_first, log_second = log_first + log_shares, log_second + log_shares
    return log_first.logsumexp(1) - log_second.logsumexp(1)
