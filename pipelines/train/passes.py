"""Forward passes: the loss of some rows; and those of a shard or a replica, whose bits depend on these rows alone."""

from collections.abc import Iterator

from torch import Tensor, nn

from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch, Task, row_count
from pipelines.train.batch_norm import is_single_row_error
from pipelines.train.precision import Precision
from pipelines.train.reduce.context import WorkerContext


class Passes:
    """Splits rows into passes, and runs the forward pass of each."""

    def __init__(self, task: Task, model: nn.Module, precision: Precision, context: WorkerContext, accumulate: int) -> None:
        self._task, self._model, self._precision, self._accumulate = task, model, precision, accumulate
        self._device_type = context.device.type

    def __call__(self, batch: Batch) -> Iterator[tuple[Tensor, Tensor, bool]]:
        """Yield each pass's sum of losses and weight, and whether it is the last one; the caller runs its backward pass.
        There is at least one row in a pass, and no pass without rows."""
        parts = min(self._accumulate, row_count(batch))
        for part in range(parts):
            passed = copy_aligned({name: values.tensor_split(parts)[part] for name, values in batch.items()})
            with self._precision.autocast(self._device_type):
                loss, weight = loss_and_weight(self._task, self._model, passed)
            yield loss, weight, part == parts - 1


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
