"""Base class of tasks: a model, a loss that can be summed over batches, and metrics.

A batch is a `dict[str, Tensor]` with one entry per tensor column; the first dimension is the row. A task never divides by the number
of rows: `loss` returns a sum and a weight, and the strategy divides by the weight of the global batch. Unequal shares, padding and
class weights are thus handled correctly for any number of workers.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from torch import Tensor, nn
from torchmetrics import MetricCollection

from pipelines.config import TaskSettings
from pipelines.config.did_you_mean import suggestion
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.tensor_parallel_plan import Split
from pipelines.tasks.tokens import Divisible

if TYPE_CHECKING:
    from pipelines.tasks.details import Details
    from pipelines.tasks.trivial import TrivialPredictor

Batch = dict[str, Tensor]
Monitor = tuple[str, Literal["min", "max"]]
"""The metric that selects the best epoch, and whether lower or higher is better."""


def rows_of(batch: Batch) -> int:
    """Number of rows in a batch."""
    return len(next(iter(batch.values())))


@dataclass(frozen=True)
class Data:
    """What a task knows about its dataset without reading rows."""

    columns: tuple[TensorColumn, ...]
    classes: tuple[str, ...] = ()
    """Names of the classes of the target, in the order of their numbers; empty for a quantity."""
    class_counts: tuple[int, ...] = ()
    """Number of rows of each class in the training split."""
    decode: Callable[[np.ndarray], np.ndarray] = field(default=lambda values: values)
    """Converts target values, shape (rows, …), back to the units of the query."""
    tokens: tuple[bytes, ...] = ()
    """UTF-8 bytes of each token of a packed column; the first token ends a document. Empty for other datasets."""
    encoders: Mapping[str, FittedEncoder] = field(default_factory=dict)
    """The fitted encoder of each column, by name."""
    carried: tuple[TensorColumn, ...] = ()
    """Columns that the model does not see, but whose values `task.slices` may name."""
    raw: Callable[[str, np.ndarray], np.ndarray] = field(default=lambda name, values: values)
    """Converts encoded values of a column, by its name, back to the units of the query, as far as encoding is invertible."""
    names: Callable[[str], Sequence[str]] = field(default=lambda name: ())
    """Names of the values of a column of indices, in the order of their numbers."""

    def quantity_form(self, form: str) -> dict[str, Any]:
        """The `prediction_form` of a target that is a quantity, or several: with its encoder, which converts it back."""
        fitted = self.encoders.get(self.target.name)
        return {"form": form, "encoder": fitted.feature, "state": fitted.state} if fitted else {}

    @property
    def features(self) -> tuple[TensorColumn, ...]:
        return tuple(column for column in self.columns if column.role == "feature")

    @property
    def target(self) -> TensorColumn:
        """The target column. Raises ConfigError if there is none, as with a packed feature."""
        if found := [column for column in self.columns if column.role == "target"]:
            return found[0]
        raise ConfigError("this task predicts a target, but dataset.target is empty; add one, or use a task without, such as language")


class Task(ABC):
    """Base class of tasks. A task has no state; the model is passed to its methods."""

    draws: bool = False
    """Whether training needs random numbers for each row, for augmentation or negative samples. If so, every training batch contains
    ROW_KEYS, from which `draws` computes numbers that are the same for any number of workers and after any restart."""

    minimised: str = "loss"
    """The metric that equals the training loss; `train.monitor: loss` selects it."""

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        self.settings = settings
        self.data = data

    @property
    @abstractmethod
    def monitor(self) -> Monitor:
        """The metric that selects the best epoch, unless `train.monitor` names another one."""

    @abstractmethod
    def model(self) -> nn.Module:
        """A new model, initialised from the current random state of torch; its `forward` takes a batch."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Sum of the losses of the rows, and the weight to divide it by, both scalars."""

    @abstractmethod
    def metrics(self) -> MetricCollection:
        """New metrics that accumulate the rows of one split on the CPU."""

    def monitored(self, name: str) -> Monitor:
        """The metric with this name, or for `loss` the minimised one; `monitor` if the name is empty.

        Raises ConfigError if there is no such metric, or if it does not define `higher_is_better`.
        """
        if not name:
            return self.monitor
        higher = {key: metric.higher_is_better for key, metric in self.metrics().items()}
        found = self.minimised if name == "loss" else name
        if found == self.monitor[0]:
            return self.monitor
        if found not in higher:
            remedy = suggestion(name, higher, f"{self.monitor[0]} is the default")
            raise ConfigError(f"train.monitor is {name}, but the validation metrics are {', '.join(higher)}; {remedy}")
        if higher[found] is None and found != self.minimised:
            raise ConfigError(f"train.monitor is {name}, a metric without higher_is_better; set it in its class")
        return found, "max" if higher[found] else "min"

    @abstractmethod
    def update(self, metrics: MetricCollection, output: Tensor, batch: Batch) -> None:
        """Add the rows of a batch to the metrics, given the output of the model for them."""

    def details(self) -> "Details | None":
        """What an evaluation collects for figures besides metrics, without rows; None for nothing. Raises ConfigError if
        `task.slices` do not fit the dataset."""
        return None

    def trivial_predictors(self) -> "Sequence[TrivialPredictor]":
        """Predictors that a model of the task must beat, not fitted yet; none by default. Training measures them on the rows of
        validation and test, and logs the best value of each metric as `baseline/<split>/<metric>`."""
        return ()

    @abstractmethod
    def predict(self, output: Tensor) -> dict[str, Sequence]:
        """Convert the output of the model to readable columns, one value per row: names of labels, quantities in raw units.

        With a packed column, a raw row has several windows, whose outputs are added before: outputs must be sums.
        """

    def prediction_form(self) -> dict[str, Any]:
        """How `predict` converts an output, as JSON for programs without torch: `form` names one of `export.standalone.answers`, and the
        other entries are its settings. Empty if none of them does; such programs then give the output as it is."""
        return {}

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """The model's blocks in the order in which `forward` calls them, such as a transformer's; most memory is saved if they hold
        most parameters. Strategy `sharded` gathers parameters block by block, and those outside of blocks for the whole pass.

        A block's parameters are used only by calling the block. Without blocks, all parameters are gathered for the whole pass.
        """
        return ()

    def stages(self, model: nn.Module, count: int) -> Sequence[nn.Module]:
        """The model cut into `count` consecutive stages, for `train.strategy.pipeline`; empty for a task that does not support it.

        A stage maps the output of the one before it, a tensor whose first dimension is the row, and the batch to its own output; that
        of the last one is the model's. The first one gets an empty tensor. Every parameter is in one stage, and `loss` uses the model
        only by calling it with the batch. `cut` of `tasks.stages` divides a chain of blocks, and raises ConfigError if there are too few.
        """
        return ()

    def parallel_plan(self, model: nn.Module) -> Mapping[str, Split]:
        """How workers divide the model's modules, by name, under strategy `sharded` with `tensor`; empty if they cannot.

        `model` may be without values. A module that is not named is computed whole by each of them. Dropout of a divided tensor would
        draw alike for different parts of it: divide only tensors that it does not change.
        """
        return {}

    def divisible_tokens(self, model: nn.Module) -> Divisible | None:
        """How workers divide the tokens of each row, under strategy `sharded` with `context`; None if they cannot.

        The output is the same on all of them, and a parameter's gradient is that of a worker's own tokens.
        """
        return None

    @property
    def samples(self) -> bool:
        """Whether `sample` writes a text."""
        return type(self).sample is not Task.sample

    def sample(self, model: nn.Module, epoch: int) -> str:
        """A sample text after an epoch, which is logged with the run; empty for none. Called without gradients and only on rank 0,
        or, if the model is spread over workers, on all of them at once: then every worker must call it equally often.

        Training does not use the random state that this method leaves.
        """
        return ""
