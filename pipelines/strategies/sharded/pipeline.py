"""The stages of a model that this worker computes, and torch's schedule by which they pass microbatches on."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import pipelining
from torch.distributed.device_mesh import DeviceMesh

from pipelines.config.train.train import Train
from pipelines.strategies.sharded.degrees import data_parallel
from pipelines.strategies.sharded.parameter_shards import recompute, shard_parameters
from pipelines.strategies.sharded.settings import Settings
from pipelines.strategies.sharded.stages import owners, remove_other_stages, stage_blocks, stages_by_place
from pipelines.tasks.base import Batch, Task
from pipelines.train.passes import Precision


def send(tensor: Tensor, place: int, group: dist.ProcessGroup) -> None:
    dist.send_object_list([(tensor.shape, tensor.dtype)], group=group, group_dst=place, device=tensor.device)
    dist.send(tensor, group=group, group_dst=place)


def receive(place: int, group: dist.ProcessGroup, device: torch.device) -> Tensor:
    header: list[tuple[torch.Size, torch.dtype]] = [(torch.Size(), torch.float32)]
    dist.recv_object_list(header, group=group, group_src=place, device=device)
    tensor = torch.empty(header[0][0], dtype=header[0][1], device=device)
    dist.recv(tensor, group=group, group_src=place)
    return tensor


def broadcast_from(tensor: Tensor, place: int, group: dist.ProcessGroup, device: torch.device) -> Tensor:
    """The tensor of the worker at that place, on all workers of the group. Collective."""
    header = [(tensor.shape, tensor.dtype)]
    dist.broadcast_object_list(header, group=group, group_src=place, device=device)
    shape, dtype = header[0]
    output = tensor.contiguous() if dist.get_rank(group) == place else torch.empty(shape, dtype=dtype, device=device)
    dist.broadcast(output, group=group, group_src=place)
    return output


_SCHEDULES: dict[str, Any] = {
    "1F1B": pipelining.Schedule1F1B,
    "Interleaved1F1B": pipelining.ScheduleInterleaved1F1B,
    "InterleavedZeroBubble": pipelining.ScheduleInterleavedZeroBubble,
    "ZBVZeroBubble": pipelining.ScheduleZBVZeroBubble,
}


class Pipeline:
    """This worker's place in a pipeline. The constructor removes the stages of other places from the model, and spreads this worker's
    over data-parallel workers, still without memory."""

    def __init__(
        self, settings: Train, task: Task, model: nn.Module, precision: Precision, devices: DeviceMesh, device: torch.device
    ) -> None:
        self.group = devices.get_group("pipeline")
        self.place = dist.get_rank(self.group)
        self._schedule_name, self._device = settings.strategy_as(Settings).schedule, device
        by_place = stages_by_place(self._schedule_name, dist.get_world_size(self.group))
        self._place_of = {stage: place for place, stages in enumerate(by_place) for stage in stages}
        stages, blocks = task.stages(model, len(self._place_of)), task.blocks(model)
        self.holder = {name: self._place_of[stage] for name, stage in owners(model, stages).items()}
        """The place that holds a parameter or buffer, by name."""
        self._parts = {number: _Part(stages[number], precision, self._device) for number in by_place[self.place]}
        remove_other_stages(stages, [*self._parts])
        self._units = []
        # Gathered parameters stay until the end of a step: every microbatch would gather them anew, and schedules that divide backward
        # passes would not find them.
        sharding = settings.strategy_as(Settings).model_copy(update={"reshard_after_forward": False})
        for part in self._parts.values():
            inside = stage_blocks(part, blocks)
            _prepare(part, inside, settings)
            self._units += shard_parameters(part, inside, sharding, precision, data_parallel(devices))

    @property
    def last_place(self) -> int:
        """The place of the last stage."""
        return self._place_of[len(self._place_of) - 1]

    def schedule(self, microbatches: int, loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Sequence[Batch]], None]:
        """Create a function that runs the forward and backward passes of a step, given its microbatches of equally many rows.

        `loss` maps the last stage's output for a microbatch, and the microbatch's number, to the tensor that its backward pass starts from.
        """
        count = len(self._place_of)
        stages: list[Any] = [
            pipelining.PipelineStage(part, number, count, self._device, group=self.group) for number, part in self._parts.items()
        ]
        schedule_class, one_or_all = _SCHEDULES[self._schedule_name], stages if len(stages) > 1 else stages[0]
        schedule = schedule_class(one_or_all, n_microbatches=microbatches, loss_fn=loss, scale_grads=False)
        numbers = torch.arange(microbatches)

        def run(rows: Sequence[Batch]) -> None:
            self._set_rows(rows)
            schedule.step(number=numbers, target=numbers, return_outputs=False)

        return run

    def outputs(self, microbatches: Sequence[Batch]) -> list[Tensor]:
        """The model's output for each microbatch, of any size, at the last place; empty tensors at others."""
        self._set_rows(microbatches)
        outputs = [self._output(number) for number in range(len(microbatches))]
        for unit in self._units:
            unit.reshard()
        return outputs

    def _set_rows(self, microbatches: Sequence[Batch]) -> None:
        for part in self._parts.values():
            part.rows = microbatches

    def _output(self, number: int) -> Tensor:
        hidden = torch.empty(0, device=self._device)
        for stage, place in self._place_of.items():
            if place == self.place:
                before, after = self._place_of.get(stage - 1, place), self._place_of.get(stage + 1, place)
                hidden = hidden if before == place else receive(before, self.group, self._device)
                hidden = self._parts[stage](hidden, number=torch.tensor(number))
                if after != place:
                    send(hidden, after, self.group)
        return hidden if self.place == self.last_place else hidden.new_empty(0)


class _Part(nn.Module):
    """A stage, applied to a microbatch by number; torch's pipeline passes the output of the stage before."""

    def __init__(self, stage: nn.Module, precision: Precision, device: torch.device) -> None:
        super().__init__()
        self.stage = stage
        self.rows: Sequence[Batch] = ()
        self._precision, self._device = precision, device

    def forward(self, hidden: Tensor | None = None, *, number: Tensor) -> Tensor:
        stage_input = torch.empty(0, device=self._device) if hidden is None else hidden
        with self._precision.autocast(self._device.type):
            output: Tensor = self.stage(stage_input, self.rows[int(number)])
        return output.contiguous()


def _prepare(part: _Part, blocks: Sequence[nn.Module], settings: Train) -> None:
    for block in blocks:
        recompute(block, settings.strategy_as(Settings).activation_checkpointing)
    if settings.compile:
        for compiled in blocks or [part.stage]:
            compiled.forward = torch.compile(compiled.forward)
