"""The part of a supervised task that does not depend on the network: target, loss, metrics and class weights."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection

from pipelines.config import TaskSettings
from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch, Data, Monitor, Task
from pipelines.tasks.details import ClassDetails, Details, QuantityDetails
from pipelines.tasks.targets import QuantityTarget, target_kind
from pipelines.tasks.trivial import Centre, ClassShares, TrivialPredictor


class Supervised(Task):
    """Predicts the target from the features of a batch. A subclass defines the model, with output of shape (rows, `outputs`).

    In training, a model of several members may return (rows, members, `outputs`): a row's loss is the mean of theirs."""

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        """Raises ConfigError if the settings do not fit the target."""
        super().__init__(settings, data)
        self.target = target_kind(data)
        self.outputs = self.target.outputs
        self.class_weights = class_weights(settings, data)

    @property
    def monitor(self) -> Monitor:
        return self.target.monitor

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        target = batch[self.data.target.name]
        losses = self._losses(model(batch).float(), target)
        if self.class_weights is None:
            return losses.sum(), losses.new_full((), len(losses))
        weights = self._weights(losses, target)
        return (losses * weights).sum(), weights.sum()

    def metrics(self) -> MetricCollection:
        return self.target.metrics()

    def update(self, metrics: MetricCollection, output: Tensor, batch: Batch) -> None:
        output, target = output.detach().cpu().double(), batch[self.data.target.name].cpu()
        self.target.update(metrics, output, target)
        losses = self.target.losses(output, target)
        metrics["loss"].update(losses, self._weights(losses, target))

    def trivial_predictors(self) -> Sequence[TrivialPredictor]:
        """For classes, their shares, which for the loss are those of the weight; for a number the mean, and for its absolute error the
        median."""
        column, data = self.data.target.name, self.data
        if isinstance(self.target, QuantityTarget):
            return [
                Centre("mean", np.mean, column, ("rmse", "mse", "r2"), data.decode),
                Centre("median", np.median, column, ("mae",)),
                Centre("mean", np.mean, column, ("loss",)),
            ]
        classes = len(self.target.classes)
        shares = ClassShares(column, classes, data.class_counts, self.outputs)
        if self.class_weights is None:
            return [shares]
        shares.stands_for = tuple(str(name) for name in self.metrics() if name != "loss")
        return [shares, ClassShares(column, classes, data.class_counts, self.outputs, self.class_weights.tolist(), ("loss",))]

    def details(self) -> Details:
        kind = QuantityDetails if isinstance(self.target, QuantityTarget) else ClassDetails
        return kind(self.settings, self.data, self.target)

    def predict(self, output: Tensor) -> dict[str, Sequence]:
        return self.target.predict(output.detach().cpu().double())

    def prediction_form(self) -> dict[str, Any]:
        return self.target.prediction_form()

    def _losses(self, output: Tensor, target: Tensor) -> Tensor:
        """Loss of each row, shape (rows,)."""
        if output.dim() == 2:
            return self.target.losses(output, target)
        losses_of_members = self.target.losses(output.flatten(0, 1), target.repeat_interleave(output.shape[1]))
        return losses_of_members.view(output.shape[:2]).mean(1)

    def _weights(self, losses: Tensor, target: Tensor) -> Tensor:
        """Weight of each row, with the shape, dtype and device of the losses."""
        return torch.ones_like(losses) if self.class_weights is None else self.class_weights.to(losses)[target.long()]


def class_weights(settings: TaskSettings, data: Data) -> Tensor | None:
    """Weight of each class, shape (classes,), or None if all rows have the same weight.

    With `balanced`, a class has the weight rows / (classes · rows of the class), so that the mean over rows is 1. Raises ConfigError
    if the target has no classes, or if their number differs from the number of weights.
    """
    choice, classes = settings.class_weights, data.target.cardinality
    if choice == "none":
        return None
    if classes is None:
        raise ConfigError(f"task.class_weights is {choice}, but the target {data.target.name} has no classes; set it to none")
    if choice != "balanced":
        if len(choice) != classes or not sum(choice):
            raise ConfigError(
                f"task.class_weights is {list(choice)}; it must be {classes} weights, not all 0, for {', '.join(data.classes)}"
            )
        return torch.tensor(choice)
    if len(data.class_counts) != classes:
        raise ConfigError(f"task.class_weights is balanced, but {data.target.name} has no counts of its classes; set {classes} weights")
    return torch.tensor([sum(data.class_counts) / (classes * max(count, 1)) for count in data.class_counts])
