"""Kinds of targets, which determine the number of outputs, the loss, the metrics and the form of predictions.

The kind follows from the target column: uint8 with cardinality 2 is a `BinaryTarget`, any other column with a cardinality a
`ClassTarget`, and a column without one a `QuantityTarget`. Every model returns an output of shape (rows, outputs).
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

from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.data import Data
from pipelines.tasks.metric_classes import Auc, Determination, Loss, Score
from pipelines.tasks.metrics import METRICS, Monitor


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
    def average(self, outputs: Tensor) -> Tensor:
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
        by_class = {f"probability_{name}": probabilities[:, number].tolist() for number, name in enumerate(self.classes)}
        return {"prediction": names, **by_class}


class BinaryTarget(Target):
    """Two classes: one logit, for the second class."""

    monitor = METRICS["auc"].monitor

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(output[:, 0], target.to(output.dtype), reduction="none")

    def average(self, outputs: Tensor) -> Tensor:
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


class ClassTarget(Target):
    """Several classes: one logit per class."""

    monitor = METRICS["accuracy"].monitor

    def __init__(self, data: Data) -> None:
        super().__init__(data)
        self.outputs = len(self.classes)

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(output, target.long(), reduction="none")

    def average(self, outputs: Tensor) -> Tensor:
        return outputs.log_softmax(2).logsumexp(1) - log(outputs.shape[1])

    def metrics(self) -> MetricCollection:
        return _collection(accuracy=Score(), loss=Loss())

    def update(self, metrics: MetricCollection, output: Tensor, target: Tensor) -> None:
        metrics["accuracy"].update((output.argmax(1) == target).double())

    def predict(self, output: Tensor) -> dict[str, Sequence]:
        return self._readable(output.softmax(1))

    def prediction_form(self) -> dict[str, Any]:
        return {"form": "classes", "classes": list(self.classes)}


class QuantityTarget(Target):
    """A number. All metrics except the loss are in the units of the query."""

    monitor = METRICS["rmse"].monitor

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        return (output[:, 0] - target.to(output.dtype)).square()

    def average(self, outputs: Tensor) -> Tensor:
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


def target_kind(data: Data) -> Target:
    """The kind of target of the dataset. Raises ConfigError if the target has more than one value per row."""
    column = data.target
    if column.shape:
        raise ConfigError(
            f"the target {column.name} has shape {column.shape} per row, but this task predicts one value; "
            "encode it with binary, label, or an encoder of single numbers"
        )
    if column.cardinality is None:
        return QuantityTarget(data)
    return BinaryTarget(data) if is_binary(column) else ClassTarget(data)


def is_binary(column: TensorColumn) -> bool:
    """Whether the column has the values 0 and 1, which can be used as a number or as a class."""
    return column.dtype == "uint8" and column.cardinality == 2


def _collection(**metrics: Metric) -> MetricCollection:
    """Metrics in float64, because sums over millions of rows in float32 lose the digits that distinguish epochs."""
    return MetricCollection(dict(metrics), compute_groups=False).set_dtype(torch.float64)
