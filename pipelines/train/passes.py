"""Forward passes: the loss of some rows; and those of a shard or a replica, whose bits depend on these rows alone.

Precision is that of the forward pass; parameters and gradients stay fp32. torch is seeded by the position in a run, so that no random state
has to be saved.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

import torch
from torch import Tensor, nn

from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch, Task, row_count
from pipelines.train.buffers import is_single_row_error
from pipelines.train.step_clock import FORWARD, StepClock
from pipelines.train.workers import WorkerContext


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread inside: workers with different numbers of threads get the same bits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def seed(device: torch.device, *parts: int) -> None:
    """Seed torch's generators, of the CPU and of the device, with a hash of all parts.

    torch.manual_seed takes 100 µs, since it goes through every kind of device; this takes 1 µs.
    """
    value = int.from_bytes(sha256(repr(parts).encode()).digest()[:8], "little")
    torch.default_generator.manual_seed(value)
    if device.type == "cuda":
        torch.cuda.default_generators[torch.cuda.current_device()].manual_seed(value)


@dataclass(frozen=True)
class Precision:
    dtype: torch.dtype
    has_loss_scale: bool = False
    """Whether the loss is scaled up, and gradients down again, since fp16 has a small range."""

    def autocast(self, device_type: str) -> AbstractContextManager:
        return nullcontext() if self.dtype == torch.float32 else torch.autocast(device_type, self.dtype)


def choose_precision(name: Literal["auto", "fp32", "bf16", "fp16"], device: torch.device) -> Precision:
    """Choose the precision that `train.precision` means on the device."""
    if name == "auto":
        name = "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[name]
    return Precision(dtype, has_loss_scale=name == "fp16")


class Passes:
    """Splits rows into passes, and runs the forward and backward pass of each."""

    def __init__(self, task: Task, model: nn.Module, precision: Precision, context: WorkerContext, accumulate: int) -> None:
        self._task, self._model, self._precision, self._accumulate = task, model, precision, accumulate
        self._device = context.device

    def run(
        self, batch: Batch, backward: Callable[[Tensor], None], clock: StepClock, before_last: Callable[[], None] | None = None
    ) -> Tensor:
        """Run the passes of the rows, each with at least one; none without rows. `before_last` is called before the last backward pass.

        Returns the sum of losses and the weight: float64 of shape (2,).
        """
        sums = torch.zeros(2, dtype=torch.float64, device=self._device)
        clock.enter(FORWARD)
        parts = min(self._accumulate, row_count(batch))
        for part in range(parts):
            rows = copy_aligned({name: values.tensor_split(parts)[part] for name, values in batch.items()})
            with self._precision.autocast(self._device.type):
                loss, weight = loss_and_weight(self._task, self._model, rows)
            sums += torch.stack([loss.detach().double(), weight.detach().double()])
            if before_last is not None and part == parts - 1:
                before_last()
            backward(loss)
            clock.enter(FORWARD)
        return sums


def loss_and_weight(task: Task, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """The task's loss and weight. Raises ConfigError if a batch norm gets a single row, which has no variance."""
    try:
        return task.loss(model, batch)
    except ValueError as error:
        if not is_single_row_error(error):
            raise
        raise ConfigError(
            "a batch norm got a single row, which has no variance: a pass computes the rows of a worker, of a shard, of a replica or of a "
            "client's batch, as the strategy has it, divided by train.grad_accum_steps; raise train.global_batch, lower train.shards or "
            "train.grad_accum_steps, or set train.remainder to drop"
        ) from error


def split(batch: Batch, passes: int) -> list[Batch]:
    """The rows of each pass, of which some have none if there are fewer rows."""
    if passes == 1:
        return [batch]
    parts = {name: values.tensor_split(passes) for name, values in batch.items()}
    return [{name: values[number] for name, values in parts.items()} for number in range(passes)]


def copy_aligned(batch: Batch) -> Batch:
    """A copy in memory of its own, with the usual alignment: a kernel's order of additions may depend on the alignment."""
    return {name: values.clone() for name, values in batch.items()}
