"""Output of a model that every worker holds whole: predictions for evaluation, and the task's samples."""

from typing import cast

import torch
from torch import Tensor, nn

from pipelines.tasks.base import Batch, Task, row_count
from pipelines.train.precision import Precision
from pipelines.train.reduce.context import WorkerContext


@torch.no_grad()
def predict(model: nn.Module, batch: Batch, precision: Precision, context: WorkerContext) -> Tensor:
    """The model's output in evaluation mode and in the precision of training; empty for a batch without rows."""
    if not row_count(batch):
        return torch.empty(0)
    model.eval()
    with precision.autocast(context.device.type):
        return cast(Tensor, model(batch))


@torch.no_grad()
def sample(model: nn.Module, task: Task, epoch: int, context: WorkerContext) -> str:
    """The task's samples from the model in evaluation mode, on rank 0; empty on all other workers."""
    if context.rank:
        return ""
    model.eval()
    return task.sample(model, epoch)
