"""Forward passes over the rows of a shard or a replica, whose bits depend on these rows alone."""

from collections.abc import Iterator

from torch import Tensor, nn

from pipelines.tasks.base import Batch, Task, row_count
from pipelines.train.batch_norm import loss_and_weight
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
            passed = aligned({name: values.tensor_split(parts)[part] for name, values in batch.items()})
            with self._precision.autocast(self._device_type):
                loss, weight = loss_and_weight(self._task, self._model, passed)
            yield loss, weight, part == parts - 1


def split(batch: Batch, passes: int) -> list[Batch]:
    """The rows of each pass, of which some have none if there are fewer rows."""
    if passes == 1:
        return [batch]
    parts = {name: values.tensor_split(passes) for name, values in batch.items()}
    return [{name: values[number] for name, values in parts.items()} for number in range(passes)]


def aligned(batch: Batch) -> Batch:
    """A copy in memory of its own, with the usual alignment: a kernel's order of additions may depend on the alignment."""
    return {name: values.clone() for name, values in batch.items()}
