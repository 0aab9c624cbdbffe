"""Strategy `ddp`: every worker computes the rows of its shards in one pass; gradients are all-reduced during the backward pass."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from pipelines.config.train import Train
from pipelines.errors import ConfigError
from pipelines.runtime.weights import model_weights
from pipelines.tasks.base import Batch, Task, row_count
from pipelines.train.batch_norm import convert_sync_batch_norm
from pipelines.train.buffers import ModelBuffers
from pipelines.train.ddp.compression import HOOKS, ErrorFeedback, mean_over_workers
from pipelines.train.ddp.counted_loss import CountedLoss
from pipelines.train.ddp.settings import Settings
from pipelines.train.inference import predict, sample
from pipelines.train.mesh import Mesh
from pipelines.train.passes import split
from pipelines.train.phases import EXCHANGE, FORWARD
from pipelines.train.precision import choose_precision
from pipelines.train.randomness import seed
from pipelines.train.reduce.all_reduce import TreeAllReduce
from pipelines.train.reduce.context import WorkerContext
from pipelines.train.step import FLAGS, Flags, StepResult
from pipelines.train.strategy import Strategy
from pipelines.train.update import Update

_CPU_BUCKET_MB = 25
"""Size of every bucket. By default the first one has 1 MB, so that NCCL can begin early. On CPUs that is one more message,
which took about 3 % of a step's CPU time with 0.4 M and with 3 M parameters, on two cores of one machine."""

_SPARSE = "its gradient is sparse, which no optimizer here supports; set sparse=False"


class DataParallel(Strategy):
    """DistributedDataParallel whose gradients are divided by the weight of the global batch instead of averaged over workers.

    So the gradient is that of the global batch's mean loss, however its rows are divided among workers, even if one has none.
    With `compression`, workers send it in fewer bytes.
    `step` raises ConfigError for a parameter with a sparse gradient and, on several workers, for one without a gradient.
    """

    def __init__(self, settings: Train, task: Task, build: Callable[[], nn.Module], context: WorkerContext) -> None:
        self._settings, self._task, self._context, self.mesh = settings, task, context, Mesh(context)
        self._compression = settings.strategy_as(Settings).compression
        self._precision = choose_precision(settings.precision, context.device)
        self._synced = settings.sync_batch_norm and context.world_size > 1
        model = build()
        self.model = (convert_sync_batch_norm(model, context.device) if self._synced else model).to(context.device)
        if settings.compile:
            self.model.compile()
        self._update = Update(settings, self.model, context, self._precision, self.clock, clips_alike=True)
        self._trained = [(name, parameter) for name, parameter in self.model.named_parameters() if parameter.requires_grad]
        self._feedback = (
            ErrorFeedback(self._compression, [parameter for _, parameter in self._trained], context)
            if self._compression.has_memory
            else None
        )
        self._is_compressed = self._compression.kind != "none"
        self._loss = CountedLoss(task, self.model, self._precision, context, self._synced, sums_ride=not self._is_compressed)
        self._replicated: DistributedDataParallel | None = None
        """Created at the first step, when the model's weights have been loaded."""
        self._divided_by = context.world_size
        """What DistributedDataParallel divides the sum of the workers' gradients by; 1 if they are summed in shared memory."""

    def step(self, batch: Batch, number: int, rate: float, flags: Flags, measured: bool = True) -> StepResult:
        if self._context.world_size > 1 and self._replicated is None:
            self._replicated = self._replicas()
        seed(self._context.device, self._settings.seed, number, self.mesh.replica)
        if not self.model.training:
            self.model.train()
        counts = torch.tensor([float(row_count(batch)), *flags.numbers()]).to(self._context.device, non_blocking=True)
        own_loss = torch.zeros((), device=self._context.device)
        *earlier, last = split(batch, self._settings.grad_accum_steps)
        for part in earlier:
            with self._replicated.no_sync() if self._replicated else nullcontext():
                own_loss += self._pass(part, torch.zeros_like(counts))
        own_loss += self._pass(last, counts)
        self._check_gradients()
        sums = self._over_workers(self._loss.take_sums(), number)
        sums[2:].round_()  # dividing by the number of workers may leave the last bit off
        (loss_sum, weight, rows), flags_of_all = sums.split([3, FLAGS])
        norm = self._update.apply(rate, weight, measured)
        return StepResult(norm, own_loss, loss_sum, weight, rows, flags_of_all)

    def own(self, shard_counts: tuple[int, ...]) -> None:
        self.mesh = replace(self.mesh, shard_counts=shard_counts)

    def predict(self, batch: Batch) -> Tensor:
        return predict(self.model, batch, self._precision, self._context)

    def sample(self, epoch: int) -> str:
        return sample(self.model, self._task, epoch, self._context)

    def sync_buffers(self) -> None:
        """Average the workers' batch norm statistics and errors of compression: each worker has seen other rows."""
        if self._context.world_size > 1:
            ModelBuffers(self.model).average(self._context.world_size)
        if self._feedback:
            self._feedback.even_out()

    def state_dict(self) -> dict[str, Any]:
        return self._update.state_dict() | ({"compression": self._feedback.state_dict()} if self._feedback else {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._update.load_state_dict(state)
        if self._feedback:
            self._feedback.load_state_dict(state["compression"])

    def weights(self) -> dict[str, Tensor]:
        return {} if self._context.rank else model_weights(self.model)

    def _replicas(self) -> DistributedDataParallel:
        assert self.mesh.workers_per_replica == 1, "gradients are summed over all workers, each of which holds a whole model"
        on_cpu = self._context.device.type == "cpu"
        replicated = DistributedDataParallel(self._loss, gradient_as_bucket_view=True, bucket_cap_mb=_CPU_BUCKET_MB if on_cpu else None)
        replicated.broadcast_buffers = False  # `sync_buffers` does that, less often than every step
        all_reduce = _all_reduce_in_memory(replicated, self._context) if on_cpu and not self._is_compressed else None
        if self._is_compressed:
            replicated.register_comm_hook(None, self.clock.time_hook(HOOKS[self._compression.kind]))
        elif all_reduce:
            self._divided_by = 1
            replicated.register_comm_hook(all_reduce, self.clock.time_hook(_sum_of_workers))
        return replicated

    def _check_gradients(self) -> None:
        for name, parameter in self._trained:
            if parameter.grad is None and self._replicated:
                raise ConfigError(
                    f"{name} had no part in the loss, and strategy ddp waits for the gradients of all parameters; remove it from the "
                    "model, set requires_grad=False, or set train.strategy to exact"
                )
            if parameter.grad is not None and parameter.grad.is_sparse:
                raise ConfigError(f"{name}: {_SPARSE}")

    def _over_workers(self, sums: Tensor, number: int) -> Tensor:
        """The sums over all workers. If gradients are compressed, the sums, which must be exact, have a message of their own."""
        if self._is_compressed:
            self.clock.enter(EXCHANGE)
        if self._feedback:
            return self._feedback.reduce(sums, self._update.unit, number)
        return mean_over_workers(sums, self._context) if self._is_compressed else sums

    def _pass(self, part: Batch, counts: Tensor) -> Tensor:
        """Run forward and backward over some rows. Returns the sum of their losses."""
        self.clock.enter(FORWARD)
        loss, beside = (self._replicated or self._loss)(part, counts)
        if self._replicated and self._divided_by > 1:  # sums in shared memory are complete when their hook returns
            self.clock.exchange_after_backward(loss)
        self._update.backward(loss, beside, averaged_over=self._divided_by)
        return loss.detach()


def _all_reduce_in_memory(replicated: DistributedDataParallel, context: WorkerContext) -> TreeAllReduce | None:
    """Sums gradients in shared memory, if all workers can map it. Collective."""
    largest_bytes = sum(each.nbytes for each in replicated.parameters())
    alone = [range(rank, rank + 1) for rank in range(context.world_size)]
    all_reduce = TreeAllReduce(alone, context.world_size, context.rank, context.device, largest_bytes)
    return all_reduce if all_reduce.is_in_memory else None


def _sum_of_workers(all_reduce: TreeAllReduce, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:  # type: ignore[name-defined]
    """A DDP communication hook that returns the sum over workers, not divided by their number. The backward pass waits for it,
    since the same cores would do both. Raises ConfigError for a sparse gradient."""
    gradient = bucket.buffer()
    if gradient.is_sparse:
        raise ConfigError(f"a parameter of shape {tuple(gradient.shape)}: {_SPARSE}")
    all_reduce.reduce([gradient])
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(gradient)
    return done
