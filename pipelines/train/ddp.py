"""Strategy `ddp`: every worker computes the rows of its shards in one pass, and gradients meet during the backward."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from pipelines.config.train import Train
from pipelines.loader import Loader
from pipelines.tasks.base import Batch, Task
from pipelines.train.batch_norm import synchronised
from pipelines.train.place import Place, seed
from pipelines.train.precision import Precision, precision_of
from pipelines.train.update import Update


class DataParallel:
    """DistributedDataParallel, divided by the weight of the whole global batch instead of averaged over workers.

    The gradient is that of the global batch's mean loss for any shares of the workers, also where one has no rows.
    """

    def __init__(self, settings: Train, task: Task, model: nn.Module, place: Place) -> None:
        self._settings, self._place = settings, place
        self._precision = precision_of(settings.precision, place.device)
        synced = settings.sync_batch_norm and place.world_size > 1
        self.model = (synchronised(model, place.device) if synced else model).to(place.device)
        if settings.compile:
            self.model.compile()
        loss: nn.Module = _Loss(task, self.model, self._precision, place.device.type, runs_empty=synced)
        self._loss, self._together = loss, cast(DistributedDataParallel | None, None)
        if place.world_size > 1:
            # It divides by the number of workers, which `_forward` makes good.
            self._loss = self._together = DistributedDataParallel(loss, gradient_as_bucket_view=True)
            self._together.broadcast_buffers = False  # buffers meet in `settle`, not before every step
        self._update = Update(settings, self.model, place, self._precision)

    def batches(self, loader: Loader) -> Iterator[Batch]:
        return iter(loader)

    def step(self, batch: Batch, number: int, rate: float, votes: Sequence[float], measured: bool = True) -> Tensor:
        seed(self._place, self._settings.seed, number, self._place.rank)
        if not self.model.training:
            self.model.train()
        *earlier, last = _split(batch, self._settings.accumulate)
        counts = torch.tensor([float(_rows(batch)), *votes], dtype=torch.float64).to(self._place.device, non_blocking=True)
        own = torch.zeros(2, dtype=torch.float64, device=self._place.device)
        for part in earlier:
            with self._together.no_sync() if self._together else nullcontext():
                loss, sums = self._forward(part)
                self._update.backward(loss)
            own += sums
        loss, sums = self._forward(last)
        # Sums meet while the backward runs; dividing the gradients afterwards costs one pass over them, if any.
        met = torch.cat([own + sums, counts])
        meeting = dist.all_reduce(met, async_op=True) if self._together else None
        self._update.backward(loss)
        if meeting is not None:
            meeting.wait()
        norm = self._update.apply(rate, met[1], measured)
        return torch.cat([torch.stack([norm, own[0] + sums[0]]), met])

    def predict(self, batch: Batch) -> Tensor:
        return self._update.predict(batch)

    def settle(self) -> None:
        """Average the workers' batch norm statistics: each saw its own rows."""
        if self._together:
            for buffer in self.model.buffers():
                mean = buffer.is_floating_point()
                dist.all_reduce(buffer, dist.ReduceOp.SUM if mean else dist.ReduceOp.MAX)
                if mean:
                    buffer.div_(self._place.world_size)

    def state_dict(self) -> dict[str, Any]:
        return self._update.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._update.load_state_dict(state)

    def _forward(self, part: Batch) -> tuple[Tensor, Tensor]:
        """The part's loss, scaled so that fp16 holds it; its sum and weight, float64 of shape (2,)."""
        loss, weight = self._loss(part)
        return loss * (self._place.world_size / self._settings.global_batch), torch.stack([loss.detach(), weight.detach()]).double()


class _Loss(nn.Module):
    """The task's loss as a module, which is what DistributedDataParallel can wrap. Without rows, zero with zero gradients."""

    def __init__(self, task: Task, model: nn.Module, precision: Precision, device_type: str, runs_empty: bool) -> None:
        super().__init__()
        self.model = model
        self._task, self._precision, self._device_type = task, precision, device_type
        self._runs_empty = runs_empty

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        if not _rows(batch) and not self._runs_empty:
            zero = torch.stack([parameter.flatten()[:0].sum() for parameter in self.model.parameters() if parameter.requires_grad]).sum()
            return zero, zero.detach()
        with self._precision.autocast(self._device_type):
            return self._task.loss(self.model, batch)


def _rows(batch: Batch) -> int:
    return len(next(iter(batch.values())))


def _split(batch: Batch, passes: int) -> list[Batch]:
    if passes == 1:
        return [batch]
    parts = {name: values.tensor_split(passes) for name, values in batch.items()}
    return [{name: values[number] for name, values in parts.items()} for number in range(passes)]
