"""Strategy `local_sgd`: replicas take steps of their own, and an outer step brings them together after every few steps.

Replicas are logical, like shards: a replica owns `shards / replicas` consecutive shards, and any number of workers up to `replicas`
plays them. A replica's step is one pass over its rows with its own seed, on a fixed number of threads, with deterministic kernels,
and then its own optimizer's step. Means over replicas are taken in a fixed tree. So the model is a pure function of dataset and
config, bit for bit, as with `exact`. Between two outer steps workers only exchange a few numbers per replica.

With `deltas: int8` replicas send at most a quarter of the bytes. A tensor of all replicas has one scale, its greatest absolute value on any
replica divided by 127. So the replicas' int8 values are added as integers, exactly and in any order. A replica adds its rounding error to
the values it sends next: error feedback (Seide et al., "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed
Training of Speech DNNs", Interspeech 2014; Karimireddy et al., "Error Feedback Fixes SignSGD and other Gradient Compression Schemes", ICML
2019).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

from pipelines.config.train.train import Train
from pipelines.data.loader import Loader, shard_range
from pipelines.strategies.local_sgd.settings import Settings
from pipelines.strategies.replica import ModelMeans, ModelState, Outer, Replica
from pipelines.tasks.base import Batch, Task, row_count
from pipelines.train.exact.exact import CUBLAS, check_model, require_deterministic_kernels
from pipelines.train.ordered_all_reduce import PointToPoint
from pipelines.train.passes import copy_aligned
from pipelines.train.step_clock import EXCHANGE
from pipelines.train.step_statistics import Flags, StepResult, gather_replicas
from pipelines.train.strategy import Strategy
from pipelines.train.workers import Mesh, WorkerContext

LEVELS = 127
"""The greatest int8; its negative is used too, so that rounding is the same for both signs."""


class Int8Means:
    """The mean over all replicas of a list of tensors, each rounded to int8 with error feedback."""

    def __init__(self, like: Sequence[Tensor], blocks: Sequence[range], rank: int) -> None:
        """`blocks` holds every worker's replicas, and `like` tensors as each replica gives."""
        self._replicas, self._workers, self._rank = blocks[-1].stop, len(blocks), rank
        self._sizes = [tensor.numel() for tensor in like]
        self._partial_dtype = _sum_dtype(max(map(len, blocks)))
        self._transport = PointToPoint([1] * len(blocks), rank)
        self.errors = {number: [torch.zeros_like(tensor, dtype=torch.float32) for tensor in like] for number in blocks[rank]}
        """Rounding errors that are not sent yet, by the number of each replica of this worker."""

    @torch.no_grad()
    def mean(self, by_replica: Iterable[Sequence[Tensor]]) -> list[Tensor]:
        """The mean over all replicas; `by_replica` are the tensors of this worker's. Collective."""
        for errors, tensors in zip(self.errors.values(), by_replica, strict=True):
            for error, values in zip(errors, tensors, strict=True):
                error.add_(values)
        # One scale per tensor, float32: infinite if a value is not finite, so that the mean is not finite either.
        largest_by_replica = [
            torch.stack([error.abs().amax() if error.numel() else error.new_zeros(()) for error in replica])
            for replica in self.errors.values()
        ]
        largest = torch.stack(largest_by_replica).amax(0)
        on_cpu = largest.nan_to_num(nan=torch.inf, posinf=torch.inf).cpu()
        if self._workers > 1:
            dist.all_reduce(on_cpu, dist.ReduceOp.MAX)
        scales = on_cpu.to(largest.device) / LEVELS
        partial = torch.zeros(sum(self._sizes), dtype=self._partial_dtype, device=scales.device)
        for errors in self.errors.values():
            for error, scale, partial_sum in zip(errors, scales, partial.split(self._sizes), strict=True):
                # To the nearest multiples of the scale, ties to even.
                levels = error / torch.where(scale > 0, scale, 1.0)
                rounded = levels.nan_to_num().round().clamp(-LEVELS, LEVELS).to(torch.int8)
                partial_sum.add_(rounded.flatten())
                error.sub_(rounded * scale)
        sums = self._sum(partial.cpu()).to(scales.device).split(self._sizes)
        return [(total * (scale / self._replicas)).view_as(error) for total, scale, error in zip(sums, scales, errors, strict=True)]

    def _sum(self, partial: Tensor) -> Tensor:
        """The sum of all workers' partial sums, in integers wide enough: a reduce-scatter and an all-gather. Two workers with one
        replica each send less if each sends all of its values."""
        dtype = _sum_dtype(self._replicas)
        if self._workers == 1:
            return partial.to(dtype)
        if self._workers * partial.itemsize < partial.itemsize + dtype.itemsize:
            by_worker = [torch.empty_like(partial) for _ in range(self._workers)]
            by_worker[self._rank] = partial
            self._transport.all_gather(by_worker)
            return torch.stack(by_worker).sum(0, dtype=dtype)
        padded = torch.nn.functional.pad(partial, (0, -len(partial) % self._workers))
        parts = padded.tensor_split(self._workers)
        received = self._transport.all_to_all([parts])
        sums = list(torch.empty_like(padded, dtype=dtype).tensor_split(self._workers))
        torch.sum(torch.stack([parts[self._rank], *(part for (part,) in received.values())]), 0, dtype=dtype, out=sums[self._rank])
        self._transport.all_gather(sums)
        return torch.cat(sums)[: len(partial)]


def _sum_dtype(replicas: int) -> torch.dtype:
    """The narrowest integers that hold a sum of `replicas` int8 values."""
    return next(dtype for dtype in (torch.int8, torch.int16, torch.int32) if replicas * LEVELS <= torch.iinfo(dtype).max)


class LocalSgd(Strategy):
    """Plays a contiguous block of replicas on each worker.

    The model is the mean of the replicas. The gradient norm of a step is the mean over the replicas that have rows in it.
    Raises ConfigError for a layer or, before the first step, for a kernel that is not deterministic.
    """

    environment = CUBLAS

    def __init__(self, settings: Train, task: Task, build: Callable[[], nn.Module], context: WorkerContext) -> None:
        super().__init__(settings, task, build, context)
        self._local = settings.strategy_as(Settings)
        replicas = self._local.replicas
        self._shards_per_replica = settings.shards // replicas
        self._played = [shard_range(rank, context.world_size, replicas) for rank in range(context.world_size)]
        self.mesh = Mesh(context, shard_counts=tuple(len(played) * self._shards_per_replica for played in self._played))
        self.model.to(context.device)
        check_model(self.model)
        require_deterministic_kernels(context.device)
        torch.set_num_threads(self._local.threads_per_shard)
        share = settings.model_copy(update={"global_batch": settings.global_batch // replicas})
        played = self._played[context.rank]
        self._replicas = {number: Replica(number, share, task, build().to(context.device), context, self.clock) for number in played}
        self._outer, self._mean = Outer(self._local, build().to(context.device)), ModelState(self.model)
        self._means = ModelMeans(self._outer.model_state, self._played, context.rank)
        self._int8 = Int8Means(self._mean.parameters, self._played, context.rank) if self._local.deltas == "int8" else None
        self._is_current = True
        """Whether `model` is the mean of the replicas as they are now."""
        self._is_checked = False

    def batches(self, loader: Loader) -> Iterator[list[Batch]]:
        """Each step's rows, one batch for each replica that this worker plays."""
        for batch in loader:
            shards, per_replica = loader.split_by_shard(batch), self._shards_per_replica
            rows = [sum(map(row_count, shards[first : first + per_replica])) for first in range(0, len(shards), per_replica)]
            parts = {name: values.split(rows) for name, values in batch.items()}
            yield [{name: split[number] for name, split in parts.items()} for number in range(len(rows))]

    def step(self, batch: list[Batch], number: int, rate: float, flags: Flags, compute_grad_norm: bool = True) -> StepResult:
        if not self._is_checked:  # raise ConfigError if two passes over the first rows differ, or if one replaces a buffer
            self._is_checked = True
            replicas = zip(self._replicas.values(), batch, strict=True)
            if first := next(((replica, rows) for replica, rows in replicas if row_count(rows)), None):
                first[0].check(first[1])
        self._is_current = False
        steps = zip(self._replicas.values(), batch, strict=True)
        sums_by_replica = torch.stack([replica.step(rows, number, rate, compute_grad_norm) for replica, rows in steps])
        self.clock.enter(EXCHANGE)
        by_replica, flag_counts = gather_replicas(sums_by_replica, self._played[self._context.rank], self._local.replicas, flags)
        if (number + 1) % self._local.inner_steps == 0:
            deltas = self._deltas()
            mean_deltas = self._int8.mean(deltas) if self._int8 else self._means.mean_deltas(deltas)
            self._outer.step(mean_deltas, self._mean_changes())
            for model_state in (self._mean, *(replica.model_state for replica in self._replicas.values())):
                model_state.copy(self._outer.model_state)
            self._is_current = True
        loss_sum, weight, rows, norms, replicas_with_rows = by_replica.sum(0)
        return StepResult(norms / replicas_with_rows.clamp(min=1), sums_by_replica[:, 0].sum(), loss_sum, weight, rows, flag_counts)

    def predict(self, batch: Batch) -> Tensor:
        self.sync_buffers()
        return super().predict(copy_aligned(batch))

    def sample(self, epoch: int) -> str:
        self.sync_buffers()
        return super().sample(epoch)

    def sync_buffers(self) -> None:
        """Set the model to the mean of the replicas, which do not change."""
        if not self._is_current:
            self._mean.move(self._outer.model_state, self._means.mean_deltas(self._deltas()), self._mean_changes())
            self._is_current = True

    def state_dict(self) -> dict[str, Any]:
        """The model, the outer step's state, and each replica of this worker by its number."""
        self.sync_buffers()
        replicas = {str(number): {**replica.state_dict(), "errors": self._errors(number)} for number, replica in self._replicas.items()}
        return {"model": get_model_state_dict(self.model), "outer": self._outer.state_dict(), "replicas": replicas}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        set_model_state_dict(self.model, state["model"])
        self._outer.load_state_dict(state["outer"])
        for number, replica in self._replicas.items():
            replica_state = state["replicas"][str(number)]
            replica.load_state_dict(replica_state)
            for name, error in self._errors(number).items():
                error.copy_(replica_state["errors"][name])
        self._is_current = True

    def weights(self) -> dict[str, Tensor]:
        self.sync_buffers()
        return super().weights()

    def _deltas(self) -> Iterator[list[Tensor]]:
        return (replica.model_state.deltas(self._outer.model_state) for replica in self._replicas.values())

    def _errors(self, number: int) -> dict[str, Tensor]:
        """Errors of a replica's int8 deltas that are not sent yet, by the parameter's name; empty with fp32."""
        return dict(zip(self._mean.names, self._int8.errors[number], strict=True)) if self._int8 else {}

    def _mean_changes(self) -> Tensor | None:
        return self._means.mean_changes(replica.model_state.changes(self._outer.model_state) for replica in self._replicas.values())
