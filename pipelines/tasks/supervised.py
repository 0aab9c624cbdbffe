"""The part of a supervised task that does not depend on the network: the kind of target, loss, metrics and weights of classes and rows.

What does not fit is refused before ETL reads a row.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection

from pipelines.config import TaskSettings
from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch, Monitor, Task, sum_losses
from pipelines.tasks.data import Constant, Data
from pipelines.tasks.details import ClassDetails, Details, QuantityDetails
from pipelines.tasks.targets.base import QuantityTarget, Target, is_binary
from pipelines.tasks.targets.classes import BinaryTarget, ClassificationTarget, ClassTarget, OrdinalTarget
from pipelines.tasks.targets.decision import Decision
from pipelines.tasks.targets.distributions import NegativeBinomialTarget, PoissonTarget, QuantileTarget
from pipelines.tasks.targets.labels_and_vectors import LabelsTarget, VectorTarget
from pipelines.tasks.trivial import TrivialPredictor

_COUNTS = {"poisson": PoissonTarget, "negative_binomial": NegativeBinomialTarget}


def target_kind(data: Data, settings: TaskSettings | None = None) -> Target:
    """The kind of target of the dataset, with `task.loss` if it is not `auto`. Raises ConfigError if these do not fit."""
    column, loss = data.target, settings.loss if settings else "auto"
    fitted = data.encoders.get(column.name)
    encoder = fitted.feature["encoder"] if fitted else ""
    if settings and settings.target_weights and (not column.shape or data.classes):
        raise ConfigError(
            f"task.target_weights are weights of several numbers, but the target {column.name} has none; leave them out, or encode it with "
            "vector"
        )
    if column.shape:
        return _several_values(data, settings, loss)
    if settings is None or loss == "auto":
        kind = QuantityTarget if column.cardinality is None else BinaryTarget if is_binary(column) else ClassTarget
        return kind(data, settings)
    if loss in _COUNTS and encoder in ("count", ""):
        return _COUNTS[loss](data, settings)
    if loss == "quantiles" and column.cardinality is None:
        return QuantileTarget(data, settings)
    if loss == "ordinal" and encoder in ("label", "") and (column.cardinality or 0) > 2:
        _check_order(data)
        return OrdinalTarget(data, settings)
    needed = {"quantiles": "an encoder of a number, such as standardize", "ordinal": "label, for three classes or more"}.get(loss, "count")
    raise ConfigError(
        f"task.loss is {loss}, but the target {column.name} has the encoder {encoder or 'of another kind'}; encode it with {needed}, "
        "or set task.loss to auto"
    )


def _check_order(data: Data) -> None:
    fitted = data.encoders.get(data.target.name)
    is_ordered = not fitted or bool(fitted.feature.get("order"))
    are_numbers = all(name.removeprefix("-").isdecimal() for name in data.classes)
    if not is_ordered and not (are_numbers and list(data.classes) == sorted(data.classes, key=int)):
        names = ", ".join(data.classes[:5])
        raise ConfigError(
            f"task.loss is ordinal, but the classes of the target {data.target.name} are sorted as text: {names}; name all, the lowest "
            "first, in order of its encoder label"
        )


def _several_values(data: Data, settings: TaskSettings | None, loss: str) -> Target:
    column = data.target
    if column.cardinality is not None or len(column.shape) > 1:
        raise ConfigError(
            f"the target {column.name} has shape {column.shape} per row, but this task predicts one value, several numbers or labels; "
            "encode it with binary, label, vector, labels, or an encoder of single numbers"
        )
    if loss != "auto":
        raise ConfigError(
            f"task.loss is {loss}, which is for one value, but the target {column.name} has {column.shape[0]} per row; set it to auto"
        )
    return (LabelsTarget if data.classes else VectorTarget)(data, settings)


class Supervised(Task):
    """Predicts the target from the features of a batch. A subclass defines the model, with output of shape (rows, `outputs`).

    In training, a model of several members may return (rows, members, `outputs`): a row's loss is the mean of theirs."""

    takes_terms: bool = False
    """Whether the model takes columns of the encoder `terms`, whose indices are followed by counts."""

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        """Raises ConfigError if the settings do not fit the target, or a feature has terms that the model does not take."""
        super().__init__(settings, data)
        for column in data.features:
            if column.counted and not self.takes_terms:
                raise ConfigError(
                    f"task.kind is {settings.kind}, which does not take {column.name} of the encoder terms; set task.kind to "
                    f"text, tabular or trees, or encode {column.name} by sequence"
                )
        self.target = target_kind(data, settings)
        self.outputs = self.target.outputs
        if settings.label_smoothing and not self.target.can_be_smoothed:
            raise ConfigError(
                f"task.label_smoothing is {settings.label_smoothing}, but rows of the target {data.target.name} have no single class whose "
                "cross-entropy is the loss; set it to 0, or encode the target by label or binary and set task.loss to auto"
            )
        self.class_weights = class_weights(settings, data)
        self._weight_of_class = None if self.class_weights is None else Constant(self.class_weights)

    @property
    def monitor(self) -> Monitor:
        return self.target.monitor

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        return sum_losses(*self.row_losses(model(batch).float(), batch))

    def row_losses(self, output: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """The loss of each row in training, and its weight, both of shape (rows,) with the dtype of the output; None if all weights are 1.
        A row's weight multiplies the whole loss of its smoothed label, whatever the weights of the other classes."""
        target, smoothing, shape = batch[self.data.target.name], self.settings.label_smoothing, output.shape
        if len(shape) == 3:
            output, target = output.flatten(0, 1), target.repeat_interleave(shape[1], 0)
        losses = self.target.losses_with_smoothing(output, target, smoothing) if smoothing else self.target.losses(output, target)
        losses = losses.view(shape[:2]).mean(1) if len(shape) == 3 else losses
        return losses, self.row_weights(losses, batch)

    def metrics(self) -> MetricCollection:
        return self.target.metrics()

    def update(self, metrics: MetricCollection, output: Tensor, batch: Batch) -> None:
        output, target = output.detach().cpu().double(), batch[self.data.target.name].cpu()
        self.target.update(metrics, output, target)
        losses = self.target.losses(output, target)
        metrics["loss"].update(losses, self.row_weights(losses, batch))

    def trivial_predictors(self) -> Sequence[TrivialPredictor]:
        weights = () if self.class_weights is None else self.class_weights.tolist()
        return self.target.trivial_predictors(self.settings.sample_weight, weights)

    def fit_decision(self, metrics: MetricCollection) -> dict[str, float]:
        """Of two classes, the calibration and the threshold. With weights of rows there is none: the metrics count each row once, and so
        would make other probabilities of those that the weights ask for."""
        if not isinstance(self.target, BinaryTarget) or self.settings.sample_weight:
            return {}
        weights = () if self.class_weights is None else self.class_weights.tolist()
        return self.target.fit_decision(metrics, weights).to_values()

    def replace_decision(self, decision: Mapping[str, float]) -> "Supervised":
        if not decision or not isinstance(self.target, BinaryTarget):
            return self
        task = copy(self)
        task.target = self.target.replace_decision(Decision(**decision))
        return task

    def details(self) -> Details | None:
        if isinstance(self.target, ClassificationTarget):
            return ClassDetails(self.settings, self.data, self.target)
        return QuantityDetails(self.settings, self.data, self.target) if self.target.figures == "quantity" else None

    def prediction_form(self) -> dict[str, Any]:
        return self.target.prediction_form()

    def row_weights(self, losses: Tensor, batch: Batch) -> Tensor | None:
        """A row's own weight times that of its class."""
        row_weights = super().row_weights(losses, batch)
        if self._weight_of_class is None:
            return row_weights
        class_weights = self._weight_of_class.to(losses.device, losses.dtype)[batch[self.data.target.name].to(losses.device).long()]
        return class_weights if row_weights is None else class_weights * row_weights


def class_weights(settings: TaskSettings, data: Data) -> Tensor | None:
    """Weight of each class, shape (classes,), or None if all rows have the same weight.

    With `balanced`, a class has the weight rows / (classes · rows of the class), so that the mean over rows is 1; of masks, pixels count
    instead of rows. Raises ConfigError if the target has no classes, or if their number differs from the number of weights.
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
