"""The interface of a strategy: everything in a step that depends on parallelism; and the strategy that a config names."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from pipelines.config import Config
from pipelines.config.plugins import import_class
from pipelines.config.train.train import Train
from pipelines.data.loader import Loader
from pipelines.data.versions.versions import Version, include_passthrough
from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch, Task, row_count
from pipelines.tasks.details import Explanation
from pipelines.train.fine_tuning import model_without_adapters
from pipelines.train.initial_model import first_model
from pipelines.train.optimizers import Update
from pipelines.train.passes import choose_precision
from pipelines.train.run_context import RunContext, train_order
from pipelines.train.step_clock import create_step_clock
from pipelines.train.step_statistics import GPU_STEPS_PER_READING, Flags, StepResult, StepStatistics
from pipelines.train.workers import Mesh, WorkerContext


@dataclass(frozen=True)
class ConsistentPoint:
    """A point of consistency: all workers have taken the same steps, and their parts of the state fit together.

    At such a point, and at no other, the loop saves the state, deals shards to workers anew, or ends the run. Every worker yields the same.
    """

    steps: Sequence[StepStatistics] = ()
    """Finished steps that the strategy has not counted itself."""
    save: bool = False
    """The state should be saved now, unless the epoch ends here: then it is validated first."""
    stop: bool = False
    """A worker was asked to stop: the run ends here, and the state is saved."""
    is_written: bool = False
    """Every worker has written its part of the last save."""


class Strategy(ABC):
    """How the workers share the computation of a step.

    Every method but `batches` is collective: all workers call it, in the same order, whether or not they have rows. So a
    model may be spread over workers none of which could run it alone.
    """

    gpu_steps_per_reading: int = GPU_STEPS_PER_READING
    """Short steps whose results stay on a GPU until they are read together; a request to stop is seen only then. Long ones are read one
    by one, and so is one after which `train.checkpoint.every_steps` asks for a save."""
    loader_class: type[Loader] = Loader
    saves_every_epoch: bool = False
    """Whether the state is saved after every epoch, whatever `train.checkpoint` says."""
    environment: ClassVar[Mapping[str, str]] = {}
    """Environment variables that a worker with a GPU needs before CUDA starts."""

    def __init__(self, settings: Train, task: Task, build: Callable[[], nn.Module], context: WorkerContext) -> None:
        """`build` returns the initial model, the same on all workers."""
        self._settings, self._task, self._context = settings, task, context
        self.model = build()
        """The task's module; its parameters have the task's names. A strategy may hold a part of it on each worker."""
        self.mesh = Mesh(context)
        """Which rows this worker computes."""
        self._precision = choose_precision(settings.precision, context.device)
        """Of the passes of training, and of `predict`."""
        self.clock = create_step_clock(context.device)
        """Measures the phases of a step. The loop begins steps; the strategy enters backward, exchange and optimizer, as far as it can
        separate them."""

    @classmethod  # noqa: B027  most strategies can train whatever there is
    def check(cls, settings: Train, task: Task, version: Version) -> None:
        """Raise ConfigError for a task, a model or a dataset that this strategy cannot train with these settings. The driver calls it
        before any worker starts."""

    @classmethod
    @contextmanager
    def actors(cls, settings: Train) -> Iterator[Sequence[Any]]:
        """Start what the strategy needs beside workers, and end it after the block. Yields handles, which every worker is given; the
        driver calls it, in Ray's cluster."""
        yield ()

    def connect(self, actors: Sequence[Any]) -> None:  # noqa: B027  most need none
        """Take the handles of `actors`, before the first step. Not collective."""

    def open_loader(self, config: Config, version: Version, task: Task) -> Loader:
        """The loader of the training rows that this worker computes."""
        settings = config.train
        return self.loader_class(
            include_passthrough(version, task.settings.passthrough),
            "train",
            train_order(config),
            self.mesh.worker_shards(settings.shards),
            row_keys=task.draws,
            device=self.mesh.context.device,
            cache_bytes=settings.cache_bytes,
            prefetch_bytes=settings.prefetch_bytes,
            threads=settings.cpus_per_worker,
        )

    def begin(self, run: RunContext) -> None:  # noqa: B027  most need none
        """Prepare to train, once the state of the last checkpoint has been loaded, if there is one."""

    def self_paced_steps(self, run: RunContext) -> Iterator[ConsistentPoint] | None:
        """For a strategy whose workers do not take every step together: take the epoch's remaining steps, and yield at points of
        consistency, the last of which is the end of the epoch. Between two of them the loop may save the state; it ends the iterator early
        to stop the run. None if all workers take every step together: then the loop calls `step` for every batch.
        """
        return None

    def batches(self, loader: Loader) -> Iterator[Any]:
        """The input of `step`, for every remaining step of the loader's epoch."""
        return iter(loader)

    @abstractmethod
    def step(self, batch: Any, number: int, rate: float, flags: Flags, compute_grad_norm: bool = True) -> StepResult:
        """One optimizer step, number `number` of the run, on the mean gradient of the whole global batch.

        Counts of rows and flags are exact; rounding of the other sums depends on the strategy. The gradient norm is computed
        only if `compute_grad_norm`, clipping or fp16 needs it, and is -1 otherwise: it takes 2 % of a step on a CPU.
        """

    def metrics(self) -> dict[str, float]:
        """Metrics of its own of the last step, for the training curves. Called on rank 0 only."""
        return {}

    def assign_shards(self, shard_counts: tuple[int, ...]) -> None:
        """From the next step on, replica r owns `shard_counts[r]` shards, at least one, and `mesh` says so."""
        raise NotImplementedError

    def set_weight_decay(self, weight_decay: float) -> None:
        """From the next step on, the weights decay so much. Called before each epoch, or the rest of one, with `train.changes`."""
        raise NotImplementedError

    def average_weights(self) -> AbstractContextManager[None]:
        """Have the model's parameters be their averages over steps meanwhile, with `train.ema_decay`. Around evaluation, and around what
        is kept of the model."""
        return nullcontext()

    @torch.no_grad()
    def predict(self, batch: Batch) -> Tensor:
        """The model's output, without gradients, in evaluation mode and in the precision of training. A worker with fewer
        batches than others passes some without rows, which have an empty output."""
        if not row_count(batch):
            return torch.empty(0)
        self.model.eval()
        with self._precision.autocast(self.mesh.context.device.type):
            return cast(Tensor, self.model(batch))

    @torch.no_grad()
    def explain(self, rows: Batch) -> Explanation | None:
        """The task's explanation of the model and of these rows; None where no worker holds the whole model. Called on rank 0 only, so not
        collective."""
        return self._task.explain(self.model, rows)

    @torch.no_grad()
    def sample(self, epoch: int) -> str:
        """The task's samples after an epoch: on rank 0, and empty on all others."""
        if self.mesh.context.rank:
            return ""
        self.model.eval()
        with self.average_weights():
            return self._task.sample(self.model, epoch)

    @abstractmethod
    def sync_buffers(self) -> None:
        """Make equal what differs between workers, such as batch norm's statistics. Called before evaluating and saving."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Model, optimizer and scaler by fully qualified name, and what else the next step depends on, as
        torch.distributed.checkpoint saves and reshards them."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

    def close(self) -> None:  # noqa: B027  most have none
        """End the threads that steps have started; called once after the last step, also after an error. Not collective. The model
        can still be evaluated and saved."""

    def weights(self) -> dict[str, Tensor]:
        """The whole model's parameters and buffers by name, without adapters, on the CPU: on rank 0, and empty on all others."""
        if self.mesh.context.rank:
            return {}
        with self.average_weights():
            return model_without_adapters(self.model)


class OneOptimizer(Strategy):
    """A strategy whose state is that of one model and its optimizer."""

    _update: Update

    def set_weight_decay(self, weight_decay: float) -> None:
        self._update.set_weight_decay(weight_decay)

    def average_weights(self) -> AbstractContextManager[None]:
        return self._update.average_weights()

    def state_dict(self) -> dict[str, Any]:
        return self._update.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._update.load_state_dict(state)


def strategy_class(settings: Train) -> type[Strategy]:
    """The class that `train.strategy` configures. Raises ConfigError if it cannot be imported or is not a Strategy."""
    try:
        return import_class(settings.strategy.implementation_for(settings), Strategy, "a strategy")  # type: ignore[type-abstract]
    except ValueError as error:
        raise ConfigError(f"train.strategy: {error}") from error


def create_strategy(
    settings: Train, task: Task, context: WorkerContext, read_weights: Callable[[], Mapping[str, Tensor]] | None = None
) -> Strategy:
    """The strategy that the config names, with a new model, or with one that starts from other weights, by name. They are read on the
    workers that hold a whole model.

    Raises TrainingError if the weights do not fit the model, ConfigError if the strategy cannot be imported or does not
    support the model.
    """
    return strategy_class(settings)(settings, task, partial(first_model, settings, task, read_weights), context)
