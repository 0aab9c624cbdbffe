"""Strategy `sharded` with a pipeline: workers compute consecutive stages of the model, and pass microbatches on to each other.

The workers of a pipeline read the same rows. Torch's schedules decide when a worker computes which microbatch, forward and backward.
Within a stage, parameters, gradients and optimizer state are spread over data-parallel workers as without a pipeline.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)

from pipelines.collectives.context import WorkerContext
from pipelines.collectives.spread import whole
from pipelines.config.train import Train
from pipelines.loader import Loader
from pipelines.parallel.buffers import ModelBuffers
from pipelines.parallel.degrees import check_degrees, data_parallel, device_mesh
from pipelines.parallel.mesh import Mesh
from pipelines.parallel.microbatches import Microbatches
from pipelines.parallel.parameter_shards import check_parameters, spread
from pipelines.parallel.precision import Precision, precision_of
from pipelines.parallel.randomness import seed
from pipelines.parallel.recompute import check_recompute, recompute
from pipelines.parallel.relay import from_place, receive, send
from pipelines.parallel.skeleton import allocate, fill, named_tensors, skeleton
from pipelines.parallel.stages import blocks_of, check_stages, keep, microbatches_of, owners, stages_by_place
from pipelines.parallel.step import FLAGS, Flags, StepResult
from pipelines.parallel.strategy import Strategy
from pipelines.parallel.tensor import divide, divided_loss
from pipelines.parallel.update import Update
from pipelines.tasks.base import Batch, Task, rows_of

_SCHEDULES = {
    "Interleaved1F1B": ScheduleInterleaved1F1B,
    "InterleavedZeroBubble": ScheduleInterleavedZeroBubble,
    "ZBVZeroBubble": ScheduleZBVZeroBubble,
}


class Pipelined(Strategy):
    """As `ddp`, gradients are divided by the weight of the global batch. All microbatches have equally many rows: where there are
    fewer, others are computed too, which do not count."""

    def __init__(self, settings: Train, task: Task, build: Callable[[], nn.Module], context: WorkerContext) -> None:
        degrees = settings.parallel.degrees(context.world_size)
        self._settings, self._task, self._context = settings, task, context
        self.mesh = Mesh(context, degrees.workers_per_replica)
        self._devices = device_mesh(degrees, context)
        self._group = self._devices.get_group("pipeline")
        self._place = dist.get_rank(self._group)
        self._precision = precision_of(settings.precision, context.device)
        self.model = skeleton(task)
        self._is_divided = degrees.tensor > 1
        if self._is_divided:
            divide(self.model, task.parallel_plan(self.model), self._devices["tensor"])
        self._prepare_stages(degrees.pipeline)
        fill(self.model, named_tensors(build()) if context.rank == 0 else {}, context, self._whole)
        self._update = Update(settings, self.model, context, self._precision, self._group)
        self._buffers = ModelBuffers(self.model)
        rows = settings.global_batch // settings.shards * len(self.mesh.owned_shards(settings.shards))
        self._microbatches = Microbatches(microbatches_of(settings, context.world_size), rows)
        self._counted: list[Batch] = []
        """The rows of each microbatch that count."""
        self._sums = torch.zeros(self._microbatches.count, 2, dtype=torch.float64, device=context.device)
        """Sum of losses and weight of each microbatch, where the last stage is."""
        self._schedule = self._new_schedule()

    def _prepare_stages(self, places: int) -> None:
        """Cut the model, remove what other workers compute, and spread the rest over data-parallel workers."""
        settings, by_place = self._settings, stages_by_place(self._settings.parallel.schedule, places)
        self._place_of = {stage: place for place, stages in enumerate(by_place) for stage in stages}
        stages = self._task.stages(self.model, len(self._place_of))
        blocks = self._task.blocks(self.model)
        self._whole = named_tensors(self.model)
        self._saved, self._parameters = list(self.model.state_dict()), [name for name, _ in self.model.named_parameters()]
        self._owner = {name: self._place_of[stage] for name, stage in owners(self.model, stages).items()}
        own = by_place[self._place]
        stays = settings.parallel.model_copy(update={"reshard_after_forward": False})  # else each microbatch would gather parameters
        keep(stages, own)
        self._units, self._parts = [], {}
        for number in own:
            part = self._parts[number] = _Part(stages[number], self._precision, self._context.device)
            inside = blocks_of(part, blocks)
            for block in inside:
                recompute(block, settings.parallel.activation_checkpointing)
            if settings.compile:
                for compiled in inside or [stages[number]]:
                    compiled.forward = torch.compile(compiled.forward)
            self._units += spread(part, inside, stays, self._precision, data_parallel(self._devices))
        allocate(self.model, self._context.device)

    def _new_schedule(self) -> Any:
        count = len(self._place_of)
        stages: list[Any] = [
            PipelineStage(part, number, count, self._context.device, group=self._group) for number, part in self._parts.items()
        ]
        settings: dict[str, Any] = {"n_microbatches": self._microbatches.count, "loss_fn": self._loss, "scale_grads": False}
        name = self._settings.parallel.schedule
        return Schedule1F1B(*stages, **settings) if name == "1F1B" else _SCHEDULES[name](stages, **settings)

    @classmethod
    def check(cls, settings: Train, task: Task) -> None:
        model = skeleton(task)
        check_degrees(settings, task, model)
        check_parameters(model, task.blocks(model))
        check_recompute(settings, task, model)
        check_stages(settings, task, model)

    def batches(self, loader: Loader) -> Iterator[Batch]:
        return iter(loader)

    def step(self, batch: Batch, number: int, rate: float, flags: Flags, measured: bool = True) -> StepResult:
        seed(self._context.device, self._settings.seed, number, self.mesh.replica, self._place)
        if not self.model.training:
            self.model.train()
        microbatches = list(self._microbatches.of_step(batch))
        self._counted = [counted for _, counted in microbatches]
        for part in self._parts.values():
            part.rows = [rows for rows, _ in microbatches]
        numbers = torch.arange(self._microbatches.count)
        self._sums.zero_()
        with divided_loss(self._is_divided):
            self._schedule.step(number=numbers, target=numbers, return_outputs=False)
        rows = rows_of(batch) if self._place == 0 else 0
        own = torch.cat([self._sums.sum(0), self._sums.new_tensor([rows])])
        if self._is_divided and self._devices.get_local_rank("tensor"):
            own.zero_()  # the first of the workers that compute a stage together counts its rows
        sums, flags_of_all, own_loss_sum = self._over_workers(own, flags)
        loss_sum, weight, rows_of_all = sums
        norm = self._update.apply(rate, weight, measured)
        return StepResult(norm, own_loss_sum, loss_sum, weight, rows_of_all, flags_of_all)

    def _loss(self, output: Tensor, number: Tensor) -> Tensor:
        """What the backward pass of a microbatch starts from, given the last stage's output."""
        counted = self._counted[int(number)]
        rows = rows_of(counted)
        if not rows:
            return output[:0].sum()
        with self._precision.autocast(self._context.device.type):
            loss, weight = self._task.loss(_Known(output[:rows]), counted)
        self._sums[int(number)] = torch.stack([loss.detach().double(), weight.detach().double()])
        return self._update.scaled(loss)

    @torch.no_grad()
    def predict(self, batch: Batch) -> Tensor:
        self.model.eval()
        for part in self._parts.values():
            part.rows = self._microbatches.of_any_size(batch)
        with divided_loss(self._is_divided):
            outputs = [self._relayed(number) for number in range(self._microbatches.count)]
        for unit in self._units:
            unit.reshard()
        if not rows_of(batch):
            return torch.empty(0)
        last = self._place_of[len(self._place_of) - 1]
        return from_place(torch.cat(outputs)[: rows_of(batch)], last, self._group, self._context.device)

    def _relayed(self, number: int) -> Tensor:
        """The output for a microbatch, where the last stage is; else a part of what this worker computed."""
        hidden = torch.empty(0, device=self._context.device)
        for stage, place in self._place_of.items():
            if place == self._place:
                before, after = self._place_of.get(stage - 1, place), self._place_of.get(stage + 1, place)
                hidden = hidden if before == place else receive(before, self._group, self._context.device)
                hidden = self._parts[stage](hidden, number=torch.tensor(number))
                if after != place:
                    send(hidden, after, self._group)
        return hidden

    def sample(self, epoch: int) -> str:
        """Rank 0 writes it on its CPU, with the gathered model: a text is written token by token, for which stages would wait."""
        if type(self._task).sample is Task.sample:
            return ""
        weights = self.weights()
        if self._context.rank:
            return ""
        model = self._task.model()
        model.load_state_dict(weights)
        with torch.no_grad():
            return self._task.sample(model.eval(), epoch)

    def sync_buffers(self) -> None:
        for group in data_parallel(self._devices).get_all_groups():
            self._buffers.average(group.size(), group)

    def state_dict(self) -> dict[str, Any]:
        """As that of `ddp`, but with the tensors of this worker's stages only: DCP puts those of all workers together."""
        state = self._update.state_dict()
        for group in state["optimizer"]["param_groups"]:
            group["params"] = self._parameters
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        groups = state["optimizer"]["param_groups"]
        own = [{**group, "params": [name for name in group["params"] if name in state["model"]]} for group in groups]
        self._update.load_state_dict({**state, "optimizer": {**state["optimizer"], "param_groups": own}})

    def weights(self) -> dict[str, Tensor]:
        own, found = self.model.state_dict(), {}
        meets_rank_0 = 0 in dist.get_process_group_ranks(self._group)
        for name in self._saved:
            place = self._owner.get(name, 0)
            tensor = whole(own[name]).detach().contiguous() if place == self._place else None
            if not meets_rank_0:
                continue
            if tensor is not None and self._place:
                dist.send(tensor, dst=0, group=self._group)
            if self._context.rank == 0:
                if tensor is None:
                    tensor = torch.empty(self._whole[name].shape, dtype=self._whole[name].dtype, device=self._context.device)
                    dist.recv(tensor, group=self._group, group_src=place)
                found[name] = tensor.cpu().clone()
        return found

    def _over_workers(self, own: Tensor, flags: Flags) -> tuple[Tensor, Tensor, Tensor]:
        """The numbers summed over all workers, the workers' flags, and the first of the numbers of this worker's replica. Collective."""
        table = own.new_zeros(self.mesh.replicas, len(own))
        table[self.mesh.replica] = own
        every = torch.cat([table.flatten(), torch.tensor(flags.numbers(), dtype=own.dtype).to(own.device, non_blocking=True)])
        dist.all_reduce(every)
        of_replicas, flags_of_all = every.split([table.numel(), FLAGS])
        of_replicas = of_replicas.view_as(table)
        return of_replicas.sum(0), flags_of_all, of_replicas[self.mesh.replica, 0]


class _Part(nn.Module):
    """A stage, applied to a microbatch of the step by number; torch's pipeline passes the output of the stage before."""

    def __init__(self, stage: nn.Module, precision: Precision, device: torch.device) -> None:
        super().__init__()
        self.stage = stage
        self.rows: list[Batch] = []
        self._precision, self._device = precision, device

    def forward(self, hidden: Tensor | None = None, *, number: Tensor) -> Tensor:
        given = torch.empty(0, device=self._device) if hidden is None else hidden
        with self._precision.autocast(self._device.type):
            output: Tensor = self.stage(given, self.rows[int(number)])
        return output.contiguous()


class _Known(nn.Module):
    """A model whose output for a batch is known."""

    def __init__(self, output: Tensor) -> None:
        super().__init__()
        self._output = output

    def forward(self, batch: Batch) -> Tensor:
        return self._output
