"""The stages of a pipeline: their workers, their parts of the model, and the models that cannot be cut into stages."""

from collections.abc import Iterator, Sequence

from torch import Tensor, nn

from pipelines.config.train.train import Train
from pipelines.errors import ConfigError
from pipelines.runtime.compat.torch import BatchNorm
from pipelines.strategies.sharded.settings import Settings
from pipelines.tasks.base import Task

_MICROBATCHES_PER_PLACE = 4
"""By default: workers then idle for less than a fifth of a step with schedule 1F1B."""


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


def stage_blocks(stage: nn.Module, blocks: Sequence[nn.Module]) -> list[nn.Module]:
    """The model's blocks that are in a stage."""
    inside = set(stage.modules())
    return [block for block in blocks if block in inside]


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
