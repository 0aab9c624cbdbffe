"""Base class of tasks: a model, a loss that can be summed over batches, and metrics.

A batch is a `dict[str, Tensor]` with one entry per tensor column; the first dimension is the row. A task never divides by the number
of rows: `loss` returns a sum and a weight, and the strategy divides by the weight of the global batch. Unequal shares, padding and
class weights are thus handled correctly for any number of workers.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection

from pipelines.config import TaskSettings
from pipelines.config.messages.words import suggestion
from pipelines.errors import ConfigError
from pipelines.tasks.answers import find_answer
from pipelines.tasks.data import Batch, Data, row_count
from pipelines.tasks.details.base import Details, Explanation
from pipelines.tasks.metrics.table import Monitor
from pipelines.tasks.model_parallel import Divisible, LayerPlan
from pipelines.tasks.trivial import TrivialPredictor

__all__ = ["Batch", "Data", "Monitor", "Task", "row_count", "sum_losses"]


def sum_losses(losses: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """The result of `Task.loss`, from losses and weights of rows, both of shape (rows,); without weights, all are 1."""
    if weights is None:
        return losses.sum(), losses.new_full((), len(losses))
    return (losses * weights).sum(), weights.sum()


class Task(ABC):
    """Base class of tasks. A task has no state; the model is passed to its methods."""

    draws: bool = False
    """Whether training needs random numbers for each row, for augmentation or negative samples. If so, every training batch contains
    ROW_KEYS, from which `draws` computes numbers that are the same for any number of workers and after any restart."""

    explains: bool = False
    """Whether `explain` says what outputs come from. If so, an evaluation keeps the rows that are most wrong as the model takes them."""

    minimised: str = "loss"
    """The metric that equals the training loss; `train.monitor: loss` selects it."""

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        self.settings = settings
        self.data = data

    def check(self) -> None:
        """Raise ConfigError, before a worker starts, if the model cannot be made or does not fit the dataset; nothing by default."""
        return

    @property
    def rows_at_once(self) -> int | None:
        """Rows, or windows of documents, that a served model may compute together, where their activations or predictions take much memory;
        None for thousands."""
        return None

    @property
    @abstractmethod
    def monitor(self) -> Monitor:
        """The metric that selects the best epoch, unless `train.monitor` names another one."""

    @abstractmethod
    def model(self) -> nn.Module:
        """A new model, initialised from the current random state of torch; its `forward` takes a batch."""

    def adopt_names(self, model: nn.Module, names: Collection[str]) -> Mapping[str, str]:
        """The names that tensors of a file, by the file's names, have in the task's model; none by default, so that all keep theirs.

        For the weights of `train.init_from`, after its `rename`. `model` may be without values.
        """
        return {}

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Sum of the losses of the rows, and the weight to divide it by, both scalars."""

    def row_weights(self, losses: Tensor, batch: Batch) -> Tensor | None:
        """Weight of each row in the loss, with the shape, dtype and device of the losses; None if all are 1."""
        column = self.settings.sample_weight
        return batch[column].to(losses) if column else None

    @abstractmethod
    def metrics(self) -> MetricCollection:
        """New metrics that accumulate the rows of one split on the CPU."""

    def choose_monitor(self, name: str) -> Monitor:
        """Return the metric with this name, or for `loss` the minimised one; `monitor` if the name is empty.

        Raises ConfigError if there is no such metric, or if it does not define `higher_is_better`.
        """
        if not name:
            return self.monitor
        is_higher_better = self._directions()
        metric = self.minimised if name == "loss" else name
        if metric == self.monitor[0]:
            return self.monitor
        if metric not in is_higher_better:
            remedy = suggestion(name, is_higher_better, f"{self.monitor[0]} is the default, and task.metrics adds others")
            raise ConfigError(f"train.monitor is {name}, but the validation metrics are {', '.join(is_higher_better)}; {remedy}")
        if is_higher_better[metric] is None and metric != self.minimised:
            raise ConfigError(f"train.monitor is {name}, a metric without higher_is_better; set it in its class")
        return metric, "max" if is_higher_better[metric] else "min"

    def describe_metrics(self, monitor: str) -> dict[str, Any]:
        """Return two JSON values for those who compare runs: `monitor`, the metric that chooses the best epoch, and `better`, `higher` or
        `lower` by metric. A metric that does not say is left out. `monitor` is that of the config, and may raise ConfigError."""
        metric, direction = self.choose_monitor(monitor)
        is_higher_better = self._directions()
        better = {name: "higher" if is_higher else "lower" for name, is_higher in is_higher_better.items() if is_higher is not None}
        minimised = {self.minimised: "lower"} if self.minimised in is_higher_better else {}
        return {"monitor": metric, "better": {**better, **minimised, metric: "higher" if direction == "max" else "lower"}}

    def _directions(self) -> dict[str, bool | None]:
        return {str(name): metric.higher_is_better for name, metric in self.metrics().items()}

    @abstractmethod
    def update(self, metrics: MetricCollection, output: Tensor, batch: Batch) -> None:
        """Add the rows of a batch to the metrics, given the output of the model for them."""

    def fit_decision(self, metrics: MetricCollection) -> dict[str, float]:
        """How outputs are turned into predictions beyond what the weights say, such as the threshold of a class: JSON values, from the
        metrics of all rows of the validation split with the best epoch's weights. Nothing by default."""
        return {}

    def replace_decision(self, decision: Mapping[str, float]) -> "Task":
        """A task of the same model whose metrics, details and predictions follow what `fit_decision` has returned."""
        return self

    def details(self) -> Details | None:
        """A new collection of figures of an evaluation besides metrics; None for nothing. Raises ConfigError if `task.slices` do not fit
        the dataset."""
        return None

    def explain(self, model: nn.Module, rows: Batch) -> Explanation:
        """Explain the outputs of the model, and those of a few rows of features on the CPU. Called if the task `explains`, on one worker,
        which holds the whole model."""
        raise NotImplementedError

    def trivial_predictors(self) -> Sequence[TrivialPredictor]:
        """Predictors that a model of the task must beat, not fitted yet; none by default. Training measures them on the rows of
        validation and test, and logs the best value of each metric as `baseline/<split>/<metric>`."""
        return ()

    def predict(self, output: Tensor) -> dict[str, Sequence]:
        """Convert the output of the model to readable columns, one value per row: names of labels, quantities in raw units; by default, as
        `prediction_form` says.

        With a packed column, a raw row has several windows, whose outputs are added before: outputs must be sums.
        """
        form, numbers = self.prediction_form(), torch.promote_types(output.dtype, torch.float32)  # NumPy has no bfloat16
        with np.errstate(over="ignore", invalid="ignore"):
            return find_answer(form)(output.detach().cpu().to(numbers).numpy(), form, self.data.decode)

    def prediction_form(self) -> dict[str, Any]:
        """The conversion that `predict` makes, as JSON, which exported folders follow too: `form` is a name that `answers` declares, or
        `module:function` of your own, which imports NumPy alone; the other entries are its settings. Empty for the output as it is."""
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
        only by calling it with the batch. `cut_stages` of `tasks.model_parallel` divides a chain of blocks, and raises ConfigError if there
        are too few.
        """
        return ()

    def parallel_plan(self, model: nn.Module) -> Mapping[str, LayerPlan]:
        """Plans of how workers divide the model's modules, by name, under strategy `sharded` with `tensor`; empty if they cannot.

        `model` may be without values. A module that is not named is computed whole by each of them. Dropout of a divided tensor would
        draw alike for different parts of it: divide only tensors that it does not change.
        """
        return {}

    def divisible_tokens(self, model: nn.Module) -> Divisible | None:
        """A plan of how workers divide the tokens of each row, under strategy `sharded` with `context`; None if they cannot.

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
