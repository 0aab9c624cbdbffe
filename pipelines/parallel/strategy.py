"""What a strategy is: everything that parallelism changes, behind six calls."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from pipelines.collectives.context import WorkerContext
from pipelines.config.train import Train
from pipelines.errors import TrainingError
from pipelines.loader import Loader
from pipelines.parallel.ddp import DataParallel
from pipelines.parallel.exact import Exact
from pipelines.tasks.base import Batch, Task


class Strategy(Protocol):
    """How the workers share the computation of a step.

    The loop asks for no more than this, so that other ways to share the work come in beside it. Every call but
    `batches` and `predict` is collective: all workers make it, in the same order.
    """

    model: nn.Module
    """The task's own module; its parameters bear the task's own names."""

    def batches(self, loader: Loader) -> Iterator[Any]:
        """What `step` takes, once for every step that is left of the loader's epoch."""

    def step(self, batch: Any, number: int, rate: float, votes: Sequence[float], measured: bool = True) -> Tensor:
        """One optimizer step, number `number` of the run, on the mean gradient of the whole global batch.

        Returns float64 of shape (5 + votes,) on the device: the gradient's norm before clipping, this worker's own loss
        sum; the global batch's loss sum, weight and rows; each vote's sum over the workers. Votes are whole numbers, and
        like the rows exact; the others are as exact as the strategy makes them. The norm is -1 if neither
        `measured` nor clipping nor fp16 asks for it: it takes a fiftieth of a step on a processor.
        """

    def predict(self, batch: Batch) -> Tensor:
        """The model's output, without gradients, in evaluation mode and the precision that it is trained in."""

    def sync_buffers(self) -> None:
        """Make equal what the workers keep apart, batch norm's statistics; before evaluating and before saving."""

    def state_dict(self) -> dict[str, Any]:
        """Model, optimizer and scaler, by fully qualified name: what torch.distributed.checkpoint saves and reshards."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


STRATEGIES: dict[str, type[DataParallel] | type[Exact]] = {"ddp": DataParallel, "exact": Exact}


def strategy_of(settings: Train, task: Task, context: WorkerContext, weights: Mapping[str, Tensor] | None = None) -> Strategy:
    """The strategy that the config names, with a new model, or with one that starts from `weights` by name.

    Raises TrainingError if the weights are not this model's.
    """
    torch.manual_seed(settings.seed)
    model = task.model()
    if weights is not None:
        take_weights(model, weights, settings.init_from)
    return STRATEGIES[settings.strategy](settings, task, model, context)


def take_weights(model: nn.Module, weights: Mapping[str, Tensor], origin: str) -> None:
    """Give the model weights by name. Raises TrainingError, naming the first few, if names or shapes differ."""
    own = model.state_dict()
    differing = sorted(name for name in own.keys() | weights.keys() if not _alike(own.get(name), weights.get(name)))
    if differing:
        raise TrainingError(
            f"train.init_from is {origin}, whose weights differ from this model's in {', '.join(differing[:5])}"
            f"{' and others' if len(differing) > 5 else ''}; names and shapes must be the same: use the same `task` and features"
        )
    model.load_state_dict(weights)


def _alike(one: Tensor | None, other: Tensor | None) -> bool:
    return one is not None and other is not None and one.shape == other.shape
