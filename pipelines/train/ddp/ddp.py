"""Strategy `ddp`: every worker computes the rows of its shards in one pass; gradients are all-reduced during the backward pass."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from pipelines.config.train.train import Train
from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch, Task, row_count
from pipelines.train.buffers import ModelBuffers, convert_sync_batch_norm
from pipelines.train.ddp.compression import HOOKS, ErrorFeedback
from pipelines.train.ddp.settings import Settings
from pipelines.train.optimizers import Update
from pipelines.train.ordered_all_reduce import TreeAllReduce
from pipelines.train.passes import Precision, loss_and_weight, seed, split
from pipelines.train.step_clock import EXCHANGE, FORWARD
from pipelines.train.step_statistics import FLAGS, Flags, StepResult
from pipelines.train.strategy import OneOptimizer
from pipelines.train.workers import WorkerContext

_CPU_BUCKET_MB = 25
"""Size of every bucket. By default the first one has 1 MB, so that NCCL can begin early. On CPUs that is one more message,
which took about 3 % of a step's CPU time with 0.4 M and with 3 M parameters, on two cores of one machine."""

_SPARSE = "its gradient is sparse, which no optimizer here supports; set sparse=False"


class DataParallel(OneOptimizer):
    """DistributedDataParallel whose gradients are divided by the weight of the global batch instead of averaged over workers.

    So the gradient is that of the global batch's mean loss, however its rows are divided among workers, even if one has none.
    With `compression`, workers send it in fewer bytes.
    `step` raises ConfigError for a parameter with a sparse gradient and, on several workers, for one without a gradient.
    """

    def __init__(self, settings: Train, task: Task, build: Callable[[], nn.Module], context: WorkerContext) -> None:
        super().__init__(settings, task, build, context)
        self._compression = settings.strategy_as(Settings).compression
        self._synced = settings.sync_batch_norm and context.world_size > 1
        self.model = (convert_sync_batch_norm(self.model) if self._synced else self.model).to(context.device)
        if settings.compile:
            self.model.compile()
        self._update = Update(settings, self.model, context, self._precision, self.clock, clips_alike=True)
        self._trained = [(name, parameter) for name, parameter in self.model.named_parameters() if parameter.requires_grad]
        self._feedback = (
            ErrorFeedback(self._compression, [parameter for _, parameter in self._trained], context)
            if self._compression.kind in ("powersgd", "topk")
            else None
        )
        self._loss = _TaskLoss(task, self.model, self._precision, context, runs_empty=self._synced)
        if settings.compile:
            self._loss.compile()  # with what comes before and after the network: augmentation, and the loss itself
        self._replicated: DistributedDataParallel | None = None
        """Created at the first step, when the model's weights have been loaded; none for a single worker."""
        self._in_memory: TreeAllReduce | None = None
        """Sums gradients if all workers are on one machine without GPUs."""
        self._sums = torch.zeros(0)
        """What is summed over workers besides."""

    def step(self, batch: Batch, number: int, rate: float, flags: Flags, compute_grad_norm: bool = True) -> StepResult:
        if self._context.world_size > 1 and self._replicated is None:
            self._replicated = self._replicas()
        seed(self._context.device, self._settings.seed, number, self.mesh.replica)
        if not self.model.training:
            self.model.train()
        # Of this worker: sum of losses, weight, rows, flags.
        self._sums = sums = torch.tensor([0.0, 0.0, row_count(batch), *flags.numbers()]).to(self._context.device, non_blocking=True)
        passes = split(batch, self._settings.grad_accum_steps)
        for rows in passes:
            is_last = rows is passes[-1]  # whose backward pass also exchanges the gradients of all
            with nullcontext() if is_last or not self._replicated else self._replicated.no_sync():
                self.clock.enter(FORWARD)
                loss, weight = (self._replicated or self._loss)(rows)
                sums[:2] += torch.stack([loss.detach(), weight.detach()])
                if self._replicated and not self._in_memory:  # whose sums are complete when the hook returns
                    self.clock.exchange_after_backward(loss)
                if is_last:
                    own_loss_sum = sums[0].clone()
                    # In memory, workers' sums are added up together with the last bucket of gradients: a message took a sixth of the CPU
                    # time of an MLP of 2 x 32.
                    sends = self._context.world_size > 1 and not self._in_memory
                    message = dist.all_reduce(sums, async_op=True) if sends else None
                self._update.backward(loss, averaged_over=1 if self._in_memory else self._context.world_size)
        self._check_gradients()
        if message:
            self.clock.enter(EXCHANGE)
            message.wait()
        (loss_sum, weight, total_rows), flag_counts = sums.double().split([3, FLAGS])
        if self._feedback:
            self._feedback.reduce(weight, self._update.unit, number)
        norm = self._update.apply(rate, weight, compute_grad_norm)
        return StepResult(norm, own_loss_sum, loss_sum, weight, total_rows, flag_counts)

    def assign_shards(self, shard_counts: tuple[int, ...]) -> None:
        self.mesh = replace(self.mesh, shard_counts=shard_counts)

    def sync_buffers(self) -> None:
        """Average the workers' batch norm statistics and errors of compression: each worker has seen other rows."""
        if self._context.world_size > 1:
            ModelBuffers(self.model).average(self._context.world_size)
        if self._feedback:
            self._feedback.even_out()

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | ({"compression": self._feedback.state_dict()} if self._feedback else {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if self._feedback:
            self._feedback.load_state_dict(state["compression"])

    def _replicas(self) -> DistributedDataParallel:
        """The loss with its all-reduce of gradients: in shared memory, if all workers are on CPUs and can map it. Collective."""
        assert self.mesh.workers_per_replica == 1, "gradients are summed over all workers, each of which holds a whole model"
        on_cpu = self._context.device.type == "cpu"
        replicated = DistributedDataParallel(self._loss, gradient_as_bucket_view=True, bucket_cap_mb=_CPU_BUCKET_MB if on_cpu else None)
        replicated.broadcast_buffers = False  # `sync_buffers` does that, less often than every step
        if self._compression.kind != "none":
            replicated.register_comm_hook(None, self.clock.time_hook(HOOKS[self._compression.kind]))
        elif on_cpu and (all_reduce := _all_reduce_in_memory(replicated, self._context)):
            self._in_memory = all_reduce
            replicated.register_comm_hook(None, self.clock.time_hook(self._sum_in_memory))
        return replicated

    def _sum_in_memory(self, _state: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:  # type: ignore[name-defined]
        """A hook that DistributedDataParallel calls in the backward pass, as soon as a bucket of gradients is computed: returns their
        sum over workers, not divided by their number. The backward pass waits for it, since the same cores would do both.

        Raises ConfigError for a sparse gradient.
        """
        gradient = bucket.buffer()
        if gradient.is_sparse:
            raise ConfigError(f"a parameter of shape {tuple(gradient.shape)}: {_SPARSE}")
        assert self._in_memory is not None
        self._in_memory.reduce([gradient], numbers=self._sums if bucket.is_last() else None)
        gradient_sum: torch.futures.Future[Tensor] = torch.futures.Future()
        gradient_sum.set_result(gradient)
        return gradient_sum

    def _check_gradients(self) -> None:
        for name, parameter in self._trained:
            if parameter.grad is None and self._replicated:
                raise ConfigError(
                    f"{name} had no part in the loss, and strategy ddp waits for the gradients of all parameters; remove it from the "
                    "model, set requires_grad=False, or set train.strategy to exact"
                )
            if parameter.grad is not None and parameter.grad.is_sparse:
                raise ConfigError(f"{name}: {_SPARSE}")


class _TaskLoss(nn.Module):
    """The task's loss as a module, since DistributedDataParallel wraps a module."""

    def __init__(self, task: Task, model: nn.Module, precision: Precision, context: WorkerContext, runs_empty: bool) -> None:
        """`runs_empty`: whether the model computes a pass without rows too, as collectives within it require."""
        super().__init__()
        self.model = model
        self._task, self._precision, self._device_type, self._runs_empty = task, precision, context.device.type, runs_empty

    def forward(self, rows: Batch) -> tuple[Tensor, Tensor]:
        """The sum of losses, and the weight: zeros without rows, with zero gradients."""
        if not row_count(rows) and not self._runs_empty:
            zero = torch.stack([parameter.flatten()[:0].sum() for parameter in self.model.parameters() if parameter.requires_grad]).sum()
            return zero, zero.detach()
        with self._precision.autocast(self._device_type):
            return loss_and_weight(self._task, self.model, rows)


def _all_reduce_in_memory(replicated: DistributedDataParallel, context: WorkerContext) -> TreeAllReduce | None:
    """Sums gradients in shared memory, if all workers can map it. Collective."""
    largest_bytes = sum(parameter.nbytes for parameter in replicated.parameters() if parameter.requires_grad)
    alone = [range(rank, rank + 1) for rank in range(context.world_size)]
    all_reduce = TreeAllReduce(alone, context.world_size, context.rank, context.device, largest_bytes)
    return all_reduce if all_reduce.is_in_memory else None
