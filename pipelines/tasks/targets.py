"""What a target asks for: the number of outputs, the loss, the metrics, and how predictions read.

The target's column decides. uint8 below 2 is `Binary`, any other column with a cardinality is `Classes`, and a column
without one is a `Quantity`. A model gives an output of shape (rows, outputs), whatever the network.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torchmetrics import MeanAbsoluteError, MeanSquaredError, Metric, MetricCollection
from torchmetrics.classification import BinaryAUROC

from pipelines.dataset.schema import TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.base import Data, Monitor
from pipelines.tasks.means import Loss, Score
from pipelines.tasks.moments import combined, moments


class Target(ABC):
    """One kind of target. All metrics take batches without rows, and meet over torch.distributed."""

    monitor: Monitor
    outputs: int = 1
    """Width of the model's output."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self.classes = data.classes or tuple(map(str, range(data.target.cardinality or 0)))

    @abstractmethod
    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        """Each row's loss, shape (rows,), in the units that are trained on."""

    @abstractmethod
    def metrics(self) -> MetricCollection:
        """Metrics that accumulate in float64 on the CPU; `loss` among them is what training minimises."""

    @abstractmethod
    def update(self, metrics: MetricCollection, output: Tensor, target: Tensor) -> None:
        """Add rows, given as float64 output and target on the CPU."""

    @abstractmethod
    def predict(self, output: Tensor) -> dict[str, Sequence]:
        """Columns for people, from float64 output on the CPU."""

    def _readable(self, probabilities: Tensor) -> dict[str, Sequence]:
        """The most probable class's name and every class's probability, from shape (rows, classes)."""
        names = [self.classes[number] for number in probabilities.argmax(1).tolist()]
        each = {f"probability_{name}": probabilities[:, number].tolist() for number, name in enumerate(self.classes)}
        return {"prediction": names, **each}


class Binary(Target):
    """One logit, for the second class."""

    monitor = ("auc", "max")

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(output[:, 0], target.to(output.dtype), reduction="none")

    def metrics(self) -> MetricCollection:
        return _collection(auc=BinaryAUROC(validate_args=False), accuracy=Score(), loss=Loss())

    def update(self, metrics: MetricCollection, output: Tensor, target: Tensor) -> None:
        # Probabilities, not logits: the metric would apply the sigmoid to some batches and not to others.
        metrics["auc"].update(output[:, 0].sigmoid(), target.long())
        metrics["accuracy"].update(((output[:, 0] > 0) == (target == 1)).double())

    def predict(self, output: Tensor) -> dict[str, Sequence]:
        probability = output.sigmoid()
        return self._readable(torch.cat([1 - probability, probability], dim=1))


class Classes(Target):
    """A logit per class."""

    monitor = ("accuracy", "max")

    def __init__(self, data: Data) -> None:
        super().__init__(data)
        self.outputs = len(self.classes)

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(output, target.long(), reduction="none")

    def metrics(self) -> MetricCollection:
        return _collection(accuracy=Score(), loss=Loss())

    def update(self, metrics: MetricCollection, output: Tensor, target: Tensor) -> None:
        metrics["accuracy"].update((output.argmax(1) == target).double())

    def predict(self, output: Tensor) -> dict[str, Sequence]:
        return self._readable(output.softmax(1))


class Quantity(Target):
    """The encoded number; all metrics but the loss are in the query's own units."""

    monitor = ("rmse", "min")

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        return (output[:, 0] - target.to(output.dtype)).square()

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

    def _raw(self, values: Tensor) -> Tensor:
        return torch.from_numpy(np.asarray(self.data.decode(values.double().numpy()), dtype=np.float64))


class Determination(Metric):
    """R², the share of the variance that is explained. torchmetrics' own fails below two rows, where this is NaN; and it sums
    squares, which leave nothing of the variance of dates or identifiers."""

    full_state_update = False
    higher_is_better = True
    true: Tensor
    """Count, mean and squared distances from it of the true values."""
    residual: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("true", default=torch.zeros(3, dtype=torch.float64), dist_reduce_fx=combined)
        self.add_state("residual", default=torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, predicted: Tensor, true: Tensor) -> None:
        self.true = combined(torch.stack([self.true, moments(true, [0])]))
        self.residual += (predicted - true).square().sum()

    def compute(self) -> Tensor:
        rows, _, squares = self.true
        return torch.where(rows < 2, torch.nan, 1 - self.residual / squares)


def target_kind(data: Data) -> Target:
    """The kind of the dataset's target. Raises ConfigError if a row of it is more than one value."""
    column = data.target
    if column.shape:
        raise ConfigError(
            f"the target {column.name} has shape {column.shape} per row; this task predicts one value: "
            "encode it with binary, label, or an encoder of one number"
        )
    if column.cardinality is None:
        return Quantity(data)
    return Binary(data) if is_binary(column) else Classes(data)


def is_binary(column: TensorColumn) -> bool:
    """Whether the column is 0 and 1, a number as much as a class."""
    return column.dtype == "uint8" and column.cardinality == 2


def _collection(**metrics: Metric) -> MetricCollection:
    """float64: sums over millions of rows in float32 lose the digits that pick the best epoch."""
    return MetricCollection(dict(metrics), compute_groups=False).set_dtype(torch.float64)
