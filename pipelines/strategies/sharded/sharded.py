"""Strategy `sharded`: parameters, gradients and optimizer state are spread over workers.

Workers gather the parameters of a block when they compute it, and free them afterwards. Gradients are summed over the workers of a
replica, each of which keeps a part of the sum, and then over replicas.
"""

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pipelines.config.train.train import Train
from pipelines.data.versions.versions import Version
from pipelines.strategies.sharded.parameter_shards import (
    allocate,
    check_parameters,
    check_recompute,
    fill,
    parameter_device,
    parameters_and_buffers,
    recompute,
    shard_parameters,
    skeleton,
)
from pipelines.strategies.sharded.settings import Settings
from pipelines.strategies.sharded.tensor_and_context import (
    check_degrees,
    data_parallel,
    device_mesh,
    divide,
    divide_tokens,
)
from pipelines.tasks.base import Batch, Task, row_count
from pipelines.train.buffers import ModelBuffers, convert_sync_batch_norm
from pipelines.train.dtensor import full_tensor
from pipelines.train.optimizers import Update
from pipelines.train.passes import loss_and_weight, seed, split
from pipelines.train.step_clock import FORWARD
from pipelines.train.step_statistics import FLAGS, Flags, StepResult
from pipelines.train.strategy import OneOptimizer
from pipelines.train.workers import Mesh, WorkerContext

_LENT_ROWS = 2
"""Rows of a pass that has none of its own: batch norm needs two."""


def check_spread(settings: Train, task: Task, model: nn.Module) -> None:
    """Raise ConfigError for a model, a skeleton of the task's, that cannot be spread over workers as the config says."""
    check_degrees(settings, task, model)
    check_parameters(model, task.blocks(model))
    check_recompute(settings, task, model)


class SpreadModel(OneOptimizer):
    """A model of which each worker holds a part: a skeleton, whose layers and tokens are divided as the degrees say."""

    def __init__(self, settings: Train, task: Task, build: Callable[[], nn.Module], context: WorkerContext) -> None:
        super().__init__(settings, task, partial(skeleton, task), context)
        self._spread = settings.strategy_as(Settings)
        self._degrees = self._spread.degrees(context.world_size)
        self.mesh = Mesh(context, self._degrees.workers_per_replica)
        self._devices = device_mesh(self._degrees, context, settings.timeout_seconds)
        if self._degrees.tensor > 1:
            divide(self.model, task.parallel_plan(self.model), self._devices["tensor"])
        self._tokens = divide_tokens(self._degrees, task, self.model, context, settings.timeout_seconds)

    @classmethod
    def check(cls, settings: Train, task: Task, version: Version) -> None:
        check_spread(settings, task, skeleton(task))

    def explain(self, rows: Batch) -> None:
        """Nothing: every worker has a part of the model."""


class Sharded(SpreadModel):
    """As `ddp`, a worker computes the rows of its shards together, and gradients are divided by the weight of the global batch.

    A parameter that a worker's rows do not use counts as zero there. The strategy needs a process group, for a single worker too.
    """

    def __init__(self, settings: Train, task: Task, build: Callable[[], nn.Module], context: WorkerContext) -> None:
        super().__init__(settings, task, build, context)
        self._synced = settings.sync_batch_norm and context.world_size > 1
        self.model = convert_sync_batch_norm(self.model) if self._synced else self.model
        blocks = task.blocks(self.model)
        for block in blocks:
            recompute(block, self._spread.activation_checkpointing)
        if settings.compile:
            for part in blocks or [self.model]:
                part.forward = torch.compile(part.forward)
        self._root = _Root(self.model)
        self._units = shard_parameters(self._root, blocks, self._spread, self._precision, data_parallel(self._devices))
        allocate(self._root, context.device, parameter_device(self._spread, context.device))
        fill(self.model, parameters_and_buffers(build()) if context.rank == 0 else {}, context)
        self._update = Update(settings, self.model, context, self._precision, self.clock, clips_alike=True)
        self._buffers = ModelBuffers(self.model)
        self._lent: Batch | None = None
        """The first rows of the last pass that had some."""

    def step(self, batch: Batch, number: int, rate: float, flags: Flags, compute_grad_norm: bool = True) -> StepResult:
        seed(self._context.device, self._settings.seed, number, self.mesh.replica, *self._tokens.place)
        if not self.model.training:
            self.model.train()
        pass_sums = torch.zeros(2, dtype=torch.float64, device=self._context.device)
        *earlier, last = split(batch, self._settings.grad_accum_steps)
        *_, root = self._units
        # Only the last pass of the step ends by summing gradients over all workers.
        sums_in_pass = root.set_requires_all_reduce if self._spread.reduce_every_pass else root.set_requires_gradient_sync
        sums_in_pass(False)
        for part in earlier:
            pass_sums += self._pass(part)
        sums_in_pass(True)
        pass_sums += self._pass(last)
        counts = torch.tensor([float(row_count(batch)), *flags.numbers()], dtype=torch.float64).to(self._context.device, non_blocking=True)
        sums = torch.cat([pass_sums, counts])
        if self._context.rank not in self.mesh.first_ranks:
            sums[:-FLAGS] = 0  # the first worker of a replica counts its rows
        dist.all_reduce(sums)
        (loss_sum, weight, rows), flag_counts = sums.split([3, FLAGS])
        norm = self._update.apply(rate, weight, compute_grad_norm)
        return StepResult(norm, pass_sums[0], loss_sum, weight, rows, flag_counts)

    @torch.no_grad()
    def predict(self, batch: Batch) -> Tensor:
        rows = batch if row_count(batch) else self._placeholder_rows(batch)
        self.model.eval()
        with self._precision.autocast(self._context.device.type):
            output: Tensor = self._root(operator.call, rows)
        self._free()
        return output if rows is batch else torch.empty(0)

    @torch.no_grad()
    def sample(self, epoch: int) -> str:
        self.model.eval()
        # With bf16, parameters are gathered as such. A text that is being written is too short to be divided.
        with self._precision.autocast(self._context.device.type), self._tokens.suspended():
            text: str = self._root(self._task.sample, epoch)
        self._free()
        return "" if self._context.rank else text

    def sync_buffers(self) -> None:
        """Average the workers' batch norm statistics: each worker has seen other rows."""
        self._buffers.average(self._context.world_size)

    def weights(self) -> dict[str, Tensor]:
        full_weights = {}
        for name, tensor in self.model.state_dict().items():
            gathered = full_tensor(tensor)
            if self._context.rank == 0:
                full_weights[name] = gathered.detach().cpu().clone().contiguous()
        return full_weights

    def _pass(self, part: Batch) -> Tensor:
        """Run forward and backward over some rows. Returns the sum of losses and the weight: float64 of shape (2,).

        Every worker runs every pass, since it takes part in gathering parameters: without rows, it runs other rows, which count zero.
        """
        if row_count(part):
            self._lent = {name: values[:_LENT_ROWS].clone() for name, values in part.items()}
        counts = bool(row_count(part)) or self._synced
        rows, share, before = (part, 1.0, None) if counts else (self._placeholder_rows(part), 0.0, self._buffers.clones())
        self.clock.enter(FORWARD)  # in it and in the backward pass, workers also exchange parameters and wait for each other
        with self._precision.autocast(self._context.device.type):
            loss, weight = self._root(partial(loss_and_weight, self._task), rows)
        self._update.backward(loss * share)
        if before is not None:
            self._buffers.restore(before)
        return share * torch.stack([loss.detach().double(), weight.detach().double()])

    def _placeholder_rows(self, empty: Batch) -> Batch:
        """Rows for a worker that has none: its own of an earlier pass or, before the first, zeros."""
        return self._lent or {name: values.new_zeros(_LENT_ROWS, *values.shape[1:]) for name, values in empty.items()}

    def _free(self) -> None:
        """Free all gathered parameters. Only a backward pass frees those of the root by itself."""
        for unit in self._units:
            unit.reshard()


class _Root(nn.Module):
    """Runs a function of the model as a forward pass of its own, for which the parameters outside of blocks are gathered: a loss may
    call any method of the model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(self.model, *arguments)
