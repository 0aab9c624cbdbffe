"""Targets with several values per row, which one network predicts together: labels, of which a row has any number, and numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torchmetrics import MeanAbsoluteError, MeanSquaredError, Metric, MetricCollection

from pipelines.config import TaskSettings
from pipelines.config.messages.words import name_list, suggestion
from pipelines.errors import ConfigError
from pipelines.tasks.data import Constant, Data
from pipelines.tasks.metrics.accumulation import Determination, Loss, Score
from pipelines.tasks.metrics.classification import FBeta
from pipelines.tasks.metrics.table import METRICS, metric_names
from pipelines.tasks.targets.base import Target, average_logits, mean_by_weight
from pipelines.tasks.trivial import ConstantFit, TrivialPredictor


class SeveralValues(Target):
    """Base class of targets of shape (rows, outputs)."""

    figures = ""
    predictions = ""
    further_names = "none"

    def __init__(self, data: Data, settings: TaskSettings | None = None) -> None:
        super().__init__(data, settings)
        (self.outputs,) = data.target.shape
        if settings and settings.slices:
            raise ConfigError(
                f"task.slices is {list(settings.slices)}, but the target {data.target.name} has {self.outputs} values per row, of which "
                "pages have no figures; set task.slices to []"
            )


class LabelsTarget(SeveralValues):
    """Any number of labels: a logit for each, with the mean of their binary cross-entropies. `f1` is that of all labels of all rows
    together, and `exact_match` the share of rows whose labels are all right."""

    monitor = METRICS["f1"].monitor

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(output, target.to(output.dtype), reduction="none").mean(1)

    def average(self, outputs: Tensor, shares: Tensor | None = None) -> Tensor:
        return average_logits(outputs, shares)

    def usual_metrics(self) -> dict[str, Metric]:
        return {"f1": FBeta(1.0, self.outputs, is_pooled=True), "exact_match": Score(), "loss": Loss()}

    def update(self, metrics: MetricCollection, output: Tensor, target: Tensor) -> None:
        predicted = output > 0
        metrics["f1"].update(predicted, target)
        metrics["exact_match"].update((predicted == (target == 1)).all(1).double())

    def trivial_predictors(self, row_weight: str, class_weights: Sequence[float]) -> list[TrivialPredictor]:
        """The share of rows that have each label, which for the loss is that of the weight."""

        def logits_of_shares(labels: np.ndarray, weights: np.ndarray) -> Tensor:
            least = 0.5 / (len(labels) + 1)  # a label that none or all rows have counts as if half a row differed
            return mean_by_weight(labels, weights).clamp(least, 1 - least).logit()

        column = self.data.target.name
        return [
            ConstantFit("label shares", logits_of_shares, column, ("f1", "exact_match")),
            ConstantFit("label shares", logits_of_shares, column, ("loss",), row_weight),
        ]

    def prediction_form(self) -> dict[str, Any]:
        return {"form": "labels", "classes": list(self.classes)}


class VectorTarget(SeveralValues):
    """Several numbers: the mean of their squared errors as encoded, weighted by `task.target_weights`. Each has its `rmse_…`,
    `mae_…` and `r2_…`, in its own units."""

    monitor = METRICS["loss"].monitor

    def __init__(self, data: Data, settings: TaskSettings | None = None) -> None:
        super().__init__(data, settings)
        fitted = data.encoders.get(data.target.name)
        is_named = fitted is not None and len(fitted.inputs) == self.outputs
        self.names = fitted.inputs if fitted and is_named else tuple(map(str, range(self.outputs)))
        self.metric_names = metric_names(self.names)
        self._weights = Constant(torch.tensor(target_weights(self.names, settings.target_weights if settings else {}), dtype=torch.float64))

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        return (output - target.to(output.dtype)).square() @ self._weights.to(output.device, output.dtype)

    def usual_metrics(self) -> dict[str, Metric]:
        by_name: dict[str, Metric] = {}
        for name in self.metric_names:
            by_name |= {f"rmse_{name}": MeanSquaredError(squared=False), f"mae_{name}": MeanAbsoluteError(), f"r2_{name}": Determination()}
        return {**by_name, "loss": Loss()}

    def update(self, metrics: MetricCollection, output: Tensor, target: Tensor) -> None:
        predicted, true = self.raw(output), self.raw(target)
        for place, name in enumerate(self.metric_names):
            for metric in ("rmse", "mae", "r2"):
                metrics[f"{metric}_{name}"].update(predicted[:, place].contiguous(), true[:, place].contiguous())

    def trivial_predictors(self, row_weight: str, class_weights: Sequence[float]) -> list[TrivialPredictor]:
        """The means, which for the loss are those of the weight, and for absolute errors the medians."""

        def medians(values: np.ndarray, weights: np.ndarray) -> Tensor:
            return torch.from_numpy(np.median(values, axis=0))

        column, names = self.data.target.name, self.metric_names
        squared = tuple(f"{metric}_{name}" for metric in ("rmse", "r2") for name in names)
        return [
            ConstantFit("mean", mean_by_weight, column, squared),
            ConstantFit("mean", mean_by_weight, column, ("loss",), row_weight),
            ConstantFit("median", medians, column, tuple(f"mae_{name}" for name in names)),
        ]

    def prediction_form(self) -> dict[str, Any]:
        return {**self.data.form_to_decode("numbers"), "names": list(self.names)}


def target_weights(names: Sequence[str], weights: dict[str, float]) -> list[float]:
    """The share of each number in the loss, from `task.target_weights`: 1 for those that it does not name. Raises ConfigError for a name
    that is none of the target's, or without any weight."""
    for name in weights:
        if name not in names:
            remedy = suggestion(name, names, "leave it out")
            raise ConfigError(f"task.target_weights: {name} is no number of the target, which has {name_list(names, name)}; {remedy}")
    in_order = [weights.get(name, 1.0) for name in names]
    if not sum(in_order):
        raise ConfigError("task.target_weights are all 0, so there is nothing to learn; give one number a weight")
    return [weight / sum(in_order) for weight in in_order]
