"""Replicas, or clients: models that take optimizer steps on rows of their own, on whichever worker plays them, and are brought together.

The outer step says where all replicas start again, after each has taken steps of its own:

`average`   the mean of the replicas: Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019.
`nesterov`  SGD with Nesterov momentum, whose gradient is the replicas' mean change, reversed: Douillard et al., "DiLoCo:
            Distributed Low-Communication Training of Language Models", 2023, algorithm 1.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.optim import SGD

from pipelines.config.train.train import Train
from pipelines.strategies.outer_step import OuterStep
from pipelines.tasks.base import Batch, Task, row_count
from pipelines.train.buffers import ModelBuffers
from pipelines.train.exact.exact import check_passes
from pipelines.train.exact.gradient_reducer import Bucket, bucket_indices
from pipelines.train.optimizers import Update
from pipelines.train.ordered_all_reduce import TreeAllReduce, additions
from pipelines.train.passes import Passes, choose_precision, seed
from pipelines.train.step_clock import StepClock
from pipelines.train.workers import WorkerContext

SUMS = 5
"""Entries of what `Replica.step` returns."""


class ModelState:
    """A model's trained parameters and its buffers. Other parameters are expected to be equal in all models."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.buffers = model, ModelBuffers(model)
        trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self.names, self.parameters = list(trained), list(trained.values())

    @torch.no_grad()
    def deltas(self, start: "ModelState") -> list[Tensor]:
        """Each parameter's change since `start`."""
        return [parameter - before for parameter, before in zip(self.parameters, start.parameters, strict=True)]

    def changes(self, start: "ModelState") -> Tensor:
        """All buffers' changes since `start`: float64 of shape (buffers.numel,).

        Raises ConfigError if a pass has replaced a buffer instead of writing it.
        """
        self.buffers.check_in_place()
        return torch.cat(self.buffers.changes(start.buffers.clones()))

    @torch.no_grad()
    def move(self, start: "ModelState", deltas: Sequence[Tensor], changes: Tensor | None) -> None:
        """Go to `start` plus the mean deltas of parameters and changes of buffers. Integer buffers change by whole numbers."""
        for parameter, before, delta in zip(self.parameters, start.parameters, deltas, strict=True):
            torch.add(before, delta, out=parameter)
        self.move_buffers(start, changes)

    def move_buffers(self, start: "ModelState", changes: Tensor | None) -> None:
        """The part of `move` for buffers; there are no `changes` without buffers."""
        if changes is not None:
            self.buffers.move(start.buffers.clones(), changes, rounds_integers=True)

    @torch.no_grad()
    def copy(self, other: "ModelState") -> None:
        for parameter, values in zip(self.parameters, other.parameters, strict=True):
            parameter.copy_(values)
        self.buffers.restore(other.buffers.clones())


class Replica:
    """Parameters, buffers, optimizer and scaler of one replica."""

    def __init__(self, number: int, settings: Train, task: Task, model: nn.Module, context: WorkerContext, clock: StepClock) -> None:
        """`settings` are those of `train`, but with the replica's share of `global_batch`."""
        self._number, self._settings, self._device, self._clock = number, settings, context.device, clock
        self.model_state, precision = ModelState(model.train()), choose_precision(settings.precision, context.device)
        self._update = Update(settings, model, context, precision, clock)
        self._passes = Passes(task, model, precision, context, settings.grad_accum_steps)

    def step(self, batch: Batch, number: int, rate: float, compute_grad_norm: bool, *within: int) -> Tensor:
        """Take step `number` of the run on the replica's rows; do nothing without rows. If a step of the run consists of several steps of
        the replica, `within` is the number of each.

        Returns the sum of losses, weight, rows, the norm of the mean gradient before clipping, and 1 if there are rows: float64 of
        shape (SUMS,).
        """
        rows = row_count(batch)
        if not rows:
            return torch.zeros(SUMS, dtype=torch.float64, device=self._device)
        seed(self._device, self._settings.seed, number, self._number, *within)
        sums = self._pass(batch)
        norm = self._update.apply(rate, sums[1], compute_grad_norm)
        return torch.cat([sums, torch.stack([sums.new_full((), rows), norm.double(), sums.new_full((), 1)])])

    def check(self, batch: Batch) -> None:
        """Raise ConfigError if two passes over the rows differ, or if one replaces a buffer. The replica does not change."""

        def run() -> Tensor:
            seed(self._device, self._settings.seed)
            return self._pass(batch)

        check_passes(self.model_state.model, self.model_state.buffers, run)

    def state_dict(self) -> dict[str, Any]:
        return self._update.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._update.load_state_dict(state)

    def _pass(self, batch: Batch) -> Tensor:
        """Run forward and backward over the rows. Returns the sum of losses and the weight: float64 of shape (2,)."""
        return self._passes.run(batch, self._update.backward, self._clock)


class Outer:
    """The model after the last outer step, and the outer optimizer; the same on all workers."""

    def __init__(self, settings: OuterStep, model: nn.Module) -> None:
        self.model_state = ModelState(model)
        # SGD with rate 1 adds the mean change: `average`.
        rate, momentum = (settings.outer_lr, settings.outer_momentum) if settings.outer == "nesterov" else (1.0, 0.0)
        self._optimizer = SGD(self.model_state.parameters, lr=rate, momentum=momentum, nesterov=momentum > 0)

    def step(self, deltas: Sequence[Tensor], changes: Tensor | None) -> None:
        """Step by the mean deltas of the replicas' parameters; their buffers are averaged. Arguments as of `ModelState.move`."""
        for parameter, delta in zip(self.model_state.parameters, deltas, strict=True):
            parameter.grad = delta.to(parameter.dtype).neg()
        self._optimizer.step()
        self._optimizer.zero_grad()
        self.model_state.move_buffers(self.model_state, changes)

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model_state.model, self._optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        set_state_dict(self.model_state.model, self._optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


class ReplicaMeans:
    """The mean over all replicas of a list of tensors, summed in the fixed tree with the replicas in place of shards."""

    def __init__(self, like: Sequence[Tensor], blocks: Sequence[range], rank: int) -> None:
        """`blocks` holds every worker's replicas, and `like` tensors as each replica gives. Collective."""
        self._replicas, self._additions = blocks[-1].stop, additions(blocks[rank], blocks[-1].stop)
        self._groups = bucket_indices(like)
        self._buckets = [Bucket([like[number] for number in group], len(blocks)) for group in self._groups]
        largest_bytes = max(bucket.nbytes for bucket in self._buckets)
        self._all_reduce = TreeAllReduce(blocks, self._replicas, rank, like[0].device, largest_bytes)

    @torch.no_grad()
    def mean(self, by_replica: Iterable[Sequence[Tensor]]) -> list[Tensor]:
        """The mean over all replicas; `by_replica` are the tensors of this worker's. Valid until the next call. Collective."""
        for times, tensors in zip(self._additions, by_replica, strict=True):
            for bucket, group in zip(self._buckets, self._groups, strict=True):
                bucket.begin()
                for view, number in zip(bucket.leaf_views, group, strict=True):
                    view.copy_(tensors[number])
                bucket.add(times)
        means: dict[int, Tensor] = {}
        for bucket, group in zip(self._buckets, self._groups, strict=True):
            self._all_reduce.reduce(bucket.partial_sums)
            means.update(zip(group, bucket.take_sum(), strict=True))
        return [means[number].div_(self._replicas) for number in sorted(means)]


class ModelMeans:
    """The means over all replicas of their changes since the last outer step. Each is prepared at its first use, which is collective."""

    def __init__(self, start: ModelState, blocks: Sequence[range], rank: int) -> None:
        """`start` is the model after the last outer step, and `blocks` holds every worker's replicas."""
        self._start, self._blocks, self._rank = start, blocks, rank
        self._parameter_means: ReplicaMeans | None = None
        self._buffer_means: ReplicaMeans | None = None

    def mean_deltas(self, deltas: Iterable[Sequence[Tensor]]) -> list[Tensor]:
        """The mean deltas of parameters, given those of each replica of this worker. Collective."""
        self._parameter_means = self._parameter_means or ReplicaMeans(self._start.parameters, self._blocks, self._rank)
        return self._parameter_means.mean(deltas)

    def mean_changes(self, changes: Iterable[Tensor]) -> Tensor | None:
        """The mean change of all buffers, as `ModelState.changes` gives those of each replica; None without buffers. Collective."""
        if not self._start.buffers.numel:
            return None
        if self._buffer_means is None:
            like = torch.empty(self._start.buffers.numel, dtype=torch.float64, device=self._start.parameters[0].device)
            self._buffer_means = ReplicaMeans([like], self._blocks, self._rank)
        return self._buffer_means.mean([change] for change in changes)[0]
