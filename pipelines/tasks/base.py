"""What a task is: a model, a loss that adds up, and metrics.

A batch is a `dict[str, Tensor]`, one entry per tensor column, rows first. A task never divides by the number of rows:
`loss` gives a sum and a weight, and the strategy divides by the weight of the whole global batch, so that unequal
shares, padding and class weights come out right for any number of workers.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from torch import Tensor, nn
from torchmetrics import MetricCollection

from pipelines.config import TaskSettings
from pipelines.config.did_you_mean import suggestion
from pipelines.dataset.manifest import FittedEncoder
from pipelines.dataset.schema import TensorColumn
from pipelines.errors import ConfigError

Batch = dict[str, Tensor]
Monitor = tuple[str, Literal["min", "max"]]
"""The metric that picks the best epoch, and which way is better."""


def rows_of(batch: Batch) -> int:
    """How many rows a batch has."""
    return len(next(iter(batch.values())))


@dataclass(frozen=True)
class Data:
    """What a task may know of its dataset before it sees a row."""

    columns: tuple[TensorColumn, ...]
    classes: tuple[str, ...] = ()
    """Names of the target's classes, in the order of their numbers; empty for a quantity."""
    class_counts: tuple[int, ...] = ()
    """Rows of each class in the training split."""
    decode: Callable[[np.ndarray], np.ndarray] = field(default=lambda values: values)
    """Turns target values, shape (rows, …), back into the query's units."""
    tokens: tuple[bytes, ...] = ()
    """What each number of a packed column stands for, as UTF-8; the first ends a document. Empty for any other dataset."""
    encoders: Mapping[str, FittedEncoder] = field(default_factory=dict)
    """What made the columns, by their names, for a task that has to know."""

    @property
    def features(self) -> tuple[TensorColumn, ...]:
        return tuple(column for column in self.columns if column.role == "feature")

    @property
    def target(self) -> TensorColumn:
        """Raises ConfigError if there is none: a packed feature stands alone."""
        if found := [column for column in self.columns if column.role == "target"]:
            return found[0]
        raise ConfigError("this task predicts a target, and dataset.target has none; give one, or take a task without, such as language")


class Task(ABC):
    """What is learned. Stateless: the model is passed in."""

    draws: bool = False
    """Whether training draws something for each row, such as an augmentation or negatives: then every training batch carries
    ROW_KEYS, from which `draws` makes numbers that are the same for any number of workers and after any restart."""

    minimised: str = "loss"
    """The metric that is what training minimises: `train.monitor` may call it loss."""

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        self.settings = settings
        self.data = data

    @property
    @abstractmethod
    def monitor(self) -> Monitor:
        """What picks the best epoch, unless `train.monitor` names another of the metrics."""

    @abstractmethod
    def model(self) -> nn.Module:
        """A new model, initialised from torch's current random state; `forward` takes a batch."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Sum of the rows' losses and the weight to divide it by, both scalars."""

    @abstractmethod
    def metrics(self) -> MetricCollection:
        """New metrics, to accumulate one split's rows on the CPU."""

    def monitored(self, name: str) -> Monitor:
        """The metric of that name, or `loss`; without a name `monitor`.

        Raises ConfigError if there is no such metric, or if it does not say which way is better.
        """
        if not name:
            return self.monitor
        higher = {key: metric.higher_is_better for key, metric in self.metrics().items()}
        found = self.minimised if name == "loss" else name
        if found == self.monitor[0]:
            return self.monitor
        if found not in higher:
            remedy = suggestion(name, higher, f"{self.monitor[0]} is the default")
            raise ConfigError(f"train.monitor is {name}, and the validation metrics are {', '.join(higher)}; {remedy}")
        if higher[found] is None and found != self.minimised:
            raise ConfigError(f"train.monitor is {name}, a metric that does not say which way is better; set higher_is_better in its class")
        return found, "max" if higher[found] else "min"

    @abstractmethod
    def update(self, metrics: MetricCollection, output: Tensor, batch: Batch) -> None:
        """Add a batch's rows to the metrics, given the model's output for them."""

    @abstractmethod
    def predict(self, output: Tensor) -> dict[str, Sequence]:
        """The model's output as columns for people, one value per row: labels by name, quantities in raw units.

        Of a packed column a raw row is several windows, whose outputs are added up before: they must be sums.
        """

    def sample(self, model: nn.Module, epoch: int) -> str:
        """A text to look at after an epoch, filed with the run; empty for none. Called on rank 0 alone, without gradients.

        Nothing that training draws may come from the random state that this leaves.
        """
        return ""
