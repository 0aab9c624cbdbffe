"""The loss of a worker's rows as a module, for DistributedDataParallel, with the counts that workers sum up besides."""

import torch
from torch import Tensor, nn

from pipelines.tasks.base import Batch, Task, row_count
from pipelines.train.batch_norm import loss_and_weight
from pipelines.train.precision import Precision
from pipelines.train.reduce.context import WorkerContext
from pipelines.train.step import FLAGS


class CountedLoss(nn.Module):
    """The task's loss as a module, since DistributedDataParallel wraps a module. Without rows it is zero, with zero gradients.

    The counts that workers sum up besides are the gradient of an additional tensor, which is always zero. If `sums_ride`, it
    is a parameter. So they are part of the model's first bucket and need no message of their own, which would take 2 % of a
    small network's step.
    """

    def __init__(
        self, task: Task, model: nn.Module, precision: Precision, context: WorkerContext, runs_empty: bool, sums_ride: bool
    ) -> None:
        super().__init__()
        self.model = model
        beside = torch.zeros(3 + FLAGS, device=context.device, requires_grad=True)
        self._beside = nn.Parameter(beside) if sums_ride else beside
        self._task, self._precision, self._device_type = task, precision, context.device.type
        self._runs_empty = runs_empty

    def forward(self, batch: Batch, counts: Tensor) -> tuple[Tensor, Tensor]:
        loss, weight = self._sums(batch)
        sums = torch.cat([torch.stack([loss.detach(), weight.detach()]).float(), counts])
        return loss, (self._beside * sums).sum()

    def _sums(self, batch: Batch) -> tuple[Tensor, Tensor]:
        if not row_count(batch) and not self._runs_empty:
            zero = torch.stack([parameter.flatten()[:0].sum() for parameter in self.model.parameters() if parameter.requires_grad]).sum()
            return zero, zero.detach()
        with self._precision.autocast(self._device_type):
            return loss_and_weight(self._task, self.model, batch)

    @torch.no_grad()
    def take_sums(self) -> Tensor:
        """Return and clear the sums of loss, weight and every count: float64 of shape (3 + FLAGS,). They are those over workers if
        they ride."""
        assert self._beside.grad is not None, "a backward pass comes before"
        sums = self._beside.grad.double()
        self._beside.grad = None
        return sums
