"""The stages of a model that this worker computes, and torch's schedule by which they pass microbatches on.

Models that cannot be cut into stages are refused.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import pipelining
from torch.distributed.device_mesh import DeviceMesh

from pipelines.config.train.train import Train
from pipelines.errors import ConfigError
from pipelines.runtime.compat.torch import BatchNorm
from pipelines.strategies.sharded.parameter_shards import recompute, shard_parameters
from pipelines.strategies.sharded.settings import Settings
from pipelines.strategies.sharded.tensor_and_context import data_parallel
from pipelines.tasks.base import Batch, Task
from pipelines.train.passes import Precision

_MICROBATCHES_PER_PLACE = 4
"""By default: workers then idle for less than a fifth of a step with schedule 1F1B."""
_SCHEDULES: dict[str, Any] = {
    "1F1B": pipelining.Schedule1F1B,
    "Interleaved1F1B": pipelining.ScheduleInterleaved1F1B,
    "InterleavedZeroBubble": pipelining.ScheduleInterleavedZeroBubble,
    "ZBVZeroBubble": pipelining.ScheduleZBVZeroBubble,
}


def stages_by_place(schedule: str, places: int) -> list[list[int]]:
    """The stages that each place of the pipeline computes: one with schedule 1F1B, else two.

    Of eight stages at four places, ZBVZeroBubble has stages 0 and 7 at the first place, as a V: 0 1 2 3 3 2 1 0 of the places
    compute them in turn. The other schedules have stages 0 and 4 there.
    """
    if schedule == "1F1B":
        return [[place] for place in range(places)]
    return [[place, 2 * places - 1 - place if schedule == "ZBVZeroBubble" else place + places] for place in range(places)]


def microbatches_per_step(settings: Train, workers: int) -> int:
    """The number of microbatches of a step on that number of workers. Raises ConfigError if rows or places cannot be divided so."""
    parallel = settings.strategy_as(Settings)
    degrees = parallel.degrees(workers)
    places, rows = degrees.pipeline, settings.global_batch // (degrees.replicate * degrees.shard)
    if parallel.microbatches == "auto":
        largest = rows // (settings.grad_accum_steps * places)
        return settings.grad_accum_steps * places * max(1, min(_MICROBATCHES_PER_PLACE, largest))
    if parallel.microbatches % places:
        raise ConfigError(
            f"train.strategy.microbatches is {parallel.microbatches}; it must be a multiple of {places}, the degree pipeline, such as "
            f"{-(-parallel.microbatches // places) * places}"
        )
    if (count := settings.grad_accum_steps * parallel.microbatches) > rows:
        raise ConfigError(
            f"train.strategy.microbatches is {parallel.microbatches} in each of {settings.grad_accum_steps} passes, more than the {rows} "
            "rows of a pipeline in a step; lower it or train.grad_accum_steps, or raise train.global_batch"
        )
    return count


def owners(model: nn.Module, stages: Sequence[nn.Module]) -> dict[str, int]:
    """The number of the stage that holds each parameter and buffer, by the model's names; those of no stage are left out."""
    stage_of = {module: number for number, stage in enumerate(stages) for module in stage.modules()}
    stage_by_name = {}
    for path, module in model.named_modules(remove_duplicate=False):
        if module in stage_of:
            stage_by_name.update({f"{path}.{name}" if path else name: stage_of[module] for name, _ in _direct_tensors(module)})
    return stage_by_name


def remove_other_stages(stages: Sequence[nn.Module], worker_stages: Sequence[int]) -> None:
    """Remove from the model the parameters and buffers of all stages of other workers. Their names stay, without values."""
    kept_modules = {module for number in worker_stages for module in stages[number].modules()}
    for module in [module for stage in stages for module in stage.modules() if module not in kept_modules]:
        for name, _ in list(_direct_tensors(module)):
            setattr(module, name, None)


def _direct_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The parameters and buffers of a module, without those of its children, by name."""
    yield from module.named_parameters(recurse=False)
    yield from module.named_buffers(recurse=False)


def check_stages(settings: Train, task: Task, model: nn.Module) -> None:
    """Raise ConfigError for a model or settings with which a pipeline cannot train."""
    parallel = settings.strategy_as(Settings)
    places = parallel.degrees(settings.max_workers).pipeline
    microbatches_per_step(settings, settings.max_workers)
    prefix = f"train.strategy.pipeline is {places}, but"
    if settings.precision == "fp16":
        raise ConfigError(f"{prefix} train.precision is fp16, whose loss scale stages would have to agree on; set it to bf16 or fp32")
    if task.settings.pairs_rows:
        raise ConfigError(f"{prefix} the task mixes rows with their neighbours, which a pipeline would part; set pipeline to 1")
    if parallel.reduce_every_pass:
        raise ConfigError(f"{prefix} reduce_every_pass is true, and a pipeline sums gradients after its last microbatch; set it to false")
    schedule = parallel.schedule
    if schedule.endswith("ZeroBubble") and (settings.compile or parallel.activation_checkpointing != "none"):
        name = "train.compile" if settings.compile else "activation_checkpointing"
        raise ConfigError(
            f"train.strategy.schedule is {schedule}, which divides backward passes, as {name} does not allow; set the schedule to 1F1B or "
            "Interleaved1F1B"
        )
    _check_model(task, model, task.stages(model, sum(map(len, stages_by_place(schedule, places)))), prefix)


def _check_model(task: Task, model: nn.Module, stages: Sequence[nn.Module], prefix: str) -> None:
    name = type(task).__name__
    for path, module in model.named_modules():
        if isinstance(module, BatchNorm) or getattr(module, "track_running_stats", False):
            kind = "a batch norm" if isinstance(module, BatchNorm) else f"a {type(module).__name__}"
            raise ConfigError(
                f"{prefix} {path} of task {name} is {kind}, whose statistics would be those of a microbatch; set pipeline to 1, or choose "
                "a network whose layers keep no statistics"
            )
    uses: dict[nn.Parameter, list[str]] = {}
    for number, stage in enumerate(stages):
        if next(stage.parameters(), None) is None:
            raise ConfigError(f"{prefix} stage {number} of task {name} has no parameters; set pipeline to 1, or change its stages")
        for parameter in stage.parameters():
            uses.setdefault(parameter, []).append(str(number))
    for path, parameter in model.named_parameters():
        users = uses.get(parameter, [])
        if len(users) != 1:
            where = f"in stages {' and '.join(users)}, which cannot share weights" if users else "in no stage"
            raise ConfigError(f"{prefix} {path} of task {name} is {where}; set pipeline to 1, or change the model")


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
            modules = set(part.modules())
            inside = [block for block in blocks if block in modules]
            for block in inside:
                recompute(block, settings.strategy_as(Settings).activation_checkpointing)
            if settings.compile:
                for compiled in inside or [part.stage]:
                    compiled.forward = torch.compile(compiled.forward)
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
        outputs = []
        for number in range(len(microbatches)):
            hidden = torch.empty(0, device=self._device)
            for stage, place in self._place_of.items():
                if place == self.place:
                    before, after = self._place_of.get(stage - 1, place), self._place_of.get(stage + 1, place)
                    hidden = hidden if before == place else receive(before, self.group, self._device)
                    hidden = self._parts[stage](hidden, number=torch.tensor(number))
                    if after != place:
                        send(hidden, after, self.group)
            outputs.append(hidden if self.place == self.last_place else hidden.new_empty(0))
        for unit in self._units:
            unit.reshard()
        return outputs

    def _set_rows(self, microbatches: Sequence[Batch]) -> None:
        for part in self._parts.values():
            part.rows = microbatches


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
