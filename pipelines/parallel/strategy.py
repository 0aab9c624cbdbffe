"""The interface of a strategy: everything in a step that depends on parallelism."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from pipelines.collectives.context import WorkerContext
from pipelines.config.train import Train
from pipelines.loader import Loader
from pipelines.parallel.mesh import Mesh
from pipelines.parallel.step import Flags, StepResult
from pipelines.tasks.base import Batch, Task


class Strategy(ABC):
    """How the workers share the computation of a step.

    Every call but `batches` is collective: all workers make it, in the same order, whether or not they hold rows. So a
    model may be spread over workers, none of which could run it alone.
    """

    reproducible: ClassVar[bool] = False
    """Whether the model is the same, bit for bit, for any number of workers. Only then can a run be verified."""
    environment: ClassVar[Mapping[str, str]] = {}
    """Variables that a worker with a GPU needs before CUDA starts."""
    model: nn.Module
    """The task's module; its parameters have the task's names."""
    mesh: Mesh
    """Which rows this worker computes."""

    @abstractmethod
    def __init__(self, settings: Train, task: Task, build: Callable[[], nn.Module], context: WorkerContext) -> None:
        """`build` makes the model before the first step, the same on all workers."""

    @abstractmethod
    def batches(self, loader: Loader) -> Iterator[Any]:
        """The input of `step`, for every remaining step of the loader's epoch."""

    @abstractmethod
    def step(self, batch: Any, number: int, rate: float, flags: Flags, measured: bool = True) -> StepResult:
        """One optimizer step, number `number` of the run, on the mean gradient of the whole global batch.

        Rows and flags are exact; the other sums are as exact as the strategy makes them. The norm is -1 if neither
        `measured` nor clipping nor fp16 asks for it: it takes a fiftieth of a step on a processor.
        """

    @abstractmethod
    def predict(self, batch: Batch) -> Tensor:
        """The model's output, without gradients, in evaluation mode and the precision that it is trained in. A worker that
        has fewer batches than others gives some without rows."""

    @abstractmethod
    def sample(self, epoch: int) -> str:
        """The task's samples after an epoch: on rank 0, and empty on all others."""

    @abstractmethod
    def sync_buffers(self) -> None:
        """Make buffers that differ between workers equal, such as batch norm's statistics; before evaluating and before saving."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Model, optimizer and scaler, by fully qualified name: what torch.distributed.checkpoint saves and reshards."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

    @abstractmethod
    def weights(self) -> dict[str, Tensor]:
        """The whole model's parameters and buffers by name, on the CPU: on rank 0, and nothing on all others."""
