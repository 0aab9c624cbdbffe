"""Kinds of targets, which determine the number of outputs, the loss, the metrics and the form of predictions.

The kind follows from the target column: uint8 with cardinality 2 is `Binary`, any other column with a cardinality is `Classes`, and
a column without one is a `Quantity`. Every model returns an output of shape (rows, outputs).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import log
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torchmetrics import MeanAbsoluteError, MeanSquaredError, Metric, MetricCollection
from torchmetrics.classification import BinaryAUROC
from torchmetrics.utilities import dim_zero_cat

from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.base import Data, Monitor
from pipelines.tasks.means import Loss, Score
from pipelines.tasks.moments import combined, moments
from pipelines.tasks.values import NO_ROWS, ONE_CLASS


class Target(ABC):
    """One kind of target. All metrics accept batches without rows, and are synchronised by torch.distributed."""

    monitor: Monitor
    outputs: int = 1
    """Width of the output of the model."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self.classes = data.classes or tuple(map(str, range(data.target.cardinality or 0)))

    @abstractmethod
    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        """Loss of each row, shape (rows,), in encoded units."""

    @abstractmethod
    def averaged(self, outputs: Tensor) -> Tensor:
        """The output whose prediction is the mean of those of several models: shape (rows, outputs), from (rows, models, outputs)."""

    @abstractmethod
    def metrics(self) -> MetricCollection:
        """Metrics that accumulate in float64 on the CPU, among them `loss`, which training minimises."""

    @abstractmethod
    def update(self, metrics: MetricCollection, output: Tensor, target: Tensor) -> None:
        """Add rows, given their float64 output and target on the CPU."""

    @abstractmethod
    def predict(self, output: Tensor) -> dict[str, Sequence]:
        """Readable columns from float64 output on the CPU."""

    def prediction_form(self) -> dict[str, Any]:
        """As `Task.prediction_form`."""
        return {}

    def _readable(self, probabilities: Tensor) -> dict[str, Sequence]:
        """Name of the most probable class and probability of each class, from probabilities of shape (rows, classes)."""
        names = [self.classes[number] for number in probabilities.argmax(1).tolist()]
        each = {f"probability_{name}": probabilities[:, number].tolist() for number, name in enumerate(self.classes)}
        return {"prediction": names, **each}


class Binary(Target):
    """Two classes: one logit, for the second class."""

    monitor = ("auc", "max")

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(output[:, 0], target.to(output.dtype), reduction="none")

    def averaged(self, outputs: Tensor) -> Tensor:
        return functional.logsigmoid(outputs).logsumexp(1) - functional.logsigmoid(-outputs).logsumexp(1)

    def metrics(self) -> MetricCollection:
        return _collection(auc=Auc(), accuracy=Score(), loss=Loss())

    def update(self, metrics: MetricCollection, output: Tensor, target: Tensor) -> None:
        # Probabilities, because the metric applies the sigmoid only to batches with values outside [0, 1].
        metrics["auc"].update(output[:, 0].sigmoid(), target.long())
        metrics["accuracy"].update(((output[:, 0] > 0) == (target == 1)).double())

    def predict(self, output: Tensor) -> dict[str, Sequence]:
        probability = output.sigmoid()
        return self._readable(torch.cat([1 - probability, probability], dim=1))

    def prediction_form(self) -> dict[str, Any]:
        return {"form": "binary", "classes": list(self.classes)}


class Classes(Target):
    """Several classes: one logit per class."""

    monitor = ("accuracy", "max")

    def __init__(self, data: Data) -> None:
        super().__init__(data)
        self.outputs = len(self.classes)

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(output, target.long(), reduction="none")

    def averaged(self, outputs: Tensor) -> Tensor:
        return outputs.log_softmax(2).logsumexp(1) - log(outputs.shape[1])

    def metrics(self) -> MetricCollection:
        return _collection(accuracy=Score(), loss=Loss())

    def update(self, metrics: MetricCollection, output: Tensor, target: Tensor) -> None:
        metrics["accuracy"].update((output.argmax(1) == target).double())

    def predict(self, output: Tensor) -> dict[str, Sequence]:
        return self._readable(output.softmax(1))

    def prediction_form(self) -> dict[str, Any]:
        return {"form": "classes", "classes": list(self.classes)}


class Quantity(Target):
    """A number. All metrics except the loss are in the units of the query."""

    monitor = ("rmse", "min")

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        return (output[:, 0] - target.to(output.dtype)).square()

    def averaged(self, outputs: Tensor) -> Tensor:
        return outputs.mean(1)

    def metrics(self) -> MetricCollection:
        return _collection(
            rmse=MeanSquaredError(squared=False), mae=MeanAbsoluteError(), mse=MeanSquaredError(), r2=Determination(), loss=Loss()
        )

    def update(self, metrics: MetricCollection, output: Tensor, target: Tensor) -> None:
        predicted, true = self._raw(output[:, 0]), self._raw(target)
        for name in ("rmse", "mae", "mse", "r2"):
            metrics[name].update(predicted, true)

    def predict(self, output: Tensor) -> dict[str, Sequence]:
        return {"prediction": self._raw(output[:, 0]).tolist()}

    def prediction_form(self) -> dict[str, Any]:
        return self.data.quantity_form("quantity")

    def _raw(self, values: Tensor) -> Tensor:
        return torch.from_numpy(np.asarray(self.data.decode(values.double().numpy()), dtype=np.float64))


class Auc(BinaryAUROC):
    """The area under the ROC curve; NaN for rows of one class, where torchmetrics gives 0, and if a score is NaN."""

    preds: list[Tensor]
    """A tensor once those of several workers are gathered; `target` alike."""
    target: list[Tensor]

    def __init__(self) -> None:
        super().__init__(validate_args=False)

    def compute(self) -> Tensor:  # type: ignore[override]
        is_nan = self.undefined() or bool(dim_zero_cat(self.preds).isnan().any())
        return torch.tensor(torch.nan, dtype=torch.float64) if is_nan else super().compute()

    def undefined(self) -> str:
        if not len(self.target):
            return NO_ROWS
        classes = dim_zero_cat(self.target)
        rows, positives = len(classes), int(classes.sum())
        return NO_ROWS if not rows else ONE_CLASS if positives in (0, rows) else ""


class Determination(Metric):
    """R², the explained share of the variance. It replaces R2Score of torchmetrics, which fails for fewer than two rows, where this is
    NaN, as for equal values; and sums squares, which loses the variance of large numbers such as dates and identifiers to rounding."""

    full_state_update = False
    higher_is_better = True
    true: Tensor
    """Count, mean and sum of squared distances from the mean of the true values."""
    residual: Tensor
    lowest: Tensor
    highest: Tensor

    def __init__(self) -> None:
        super().__init__()
        # Whether the values are equal is a comparison: the squares are not exactly 0 if the mean is rounded.
        for name, reduction in (("lowest", "min"), ("highest", "max")):
            self.add_state(name, torch.tensor(torch.inf if reduction == "min" else -torch.inf, dtype=torch.float64), reduction)
        self.add_state("true", default=torch.zeros(3, dtype=torch.float64), dist_reduce_fx=combined)
        self.add_state("residual", default=torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, predicted: Tensor, true: Tensor) -> None:
        self.true = combined(torch.stack([self.true, moments(true, [0])]))
        self.residual += (predicted - true).square().sum()
        if len(true):
            self.lowest, self.highest = torch.minimum(self.lowest, true.min()), torch.maximum(self.highest, true.max())

    def compute(self) -> Tensor:
        return torch.full_like(self.residual, torch.nan) if self.undefined() else 1 - self.residual / self.true[2]

    def undefined(self) -> str:
        rows = int(self.true[0])
        if rows < 2:
            return "one row" if rows else NO_ROWS
        return "all values are equal" if self.lowest == self.highest else ""


def target_kind(data: Data) -> Target:
    """The kind of target of the dataset. Raises ConfigError if the target has more than one value per row."""
    column = data.target
    if column.shape:
        raise ConfigError(
            f"the target {column.name} has shape {column.shape} per row, but this task predicts one value; "
            "encode it with binary, label, or an encoder of single numbers"
        )
    if column.cardinality is None:
        return Quantity(data)
    return Binary(data) if is_binary(column) else Classes(data)


def is_binary(column: TensorColumn) -> bool:
    """Whether the column has the values 0 and 1, which can be used as a number or as a class."""
    return column.dtype == "uint8" and column.cardinality == 2


def _collection(**metrics: Metric) -> MetricCollection:
    """Metrics in float64, because sums over millions of rows in float32 lose the digits that distinguish epochs."""
    return MetricCollection(dict(metrics), compute_groups=False).set_dtype(torch.float64)
