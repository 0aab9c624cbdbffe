"""Layouts: how workers share a step's rows and the model. Those that `candidates` enumerates are configs that training accepts; a layout of
others' published runs may have settings of theirs besides."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from math import prod
from typing import Literal, get_args, get_type_hints

from pipelines.errors import ConfigError
from pipelines.planning.collectives import DeviceGroup, group
from pipelines.planning.model_costs import Checkpointing, Layer, ModelCosts

Schedule = Literal["1F1B", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble"]
DEGREES = ("replicate", "shard", "pipeline", "context", "tensor")
"""In the order of ranks: the last degree runs fastest."""


@dataclass(frozen=True)
class ParallelLayout:
    """Degrees, whose product is the number of workers, and what else decides a step's time and memory."""

    replicate: int = 1
    shard: int = 1
    pipeline: int = 1
    context: int = 1
    tensor: int = 1
    microbatch: int = 1
    """Rows of a pass of each worker that reads rows, or of the group of workers that share them."""
    accumulation: int = 1
    """Passes of a step."""
    microbatches: int = 0
    """Parts of a pass that a pipeline computes one after the other; 0 for four times as many as its workers, or less where rows are few."""
    checkpointing: Checkpointing = "none"
    schedule: Schedule = "1F1B"
    full_copies: bool = False
    """Whether each replica is one worker with all parameters, gradients and optimizer state; otherwise these are divided."""
    precision: Literal["fp32", "tf32", "bf16", "fp16"] = "bf16"
    compile: bool = False
    compression: Literal["none", "bf16", "fp16", "powersgd", "topk"] = "none"
    reshard_after_forward: bool = True
    """FULL_SHARD; otherwise SHARD_GRAD_OP, which keeps gathered parameters until the backward pass."""
    reduce_every_pass: bool = False
    offload: bool = False
    float8: bool = False
    """Whether matrix products of blocks have numbers of 8 bits. Training here does not offer it, nor what follows."""
    sequence_parallel: bool = False
    """Whether tensor groups divide norms and residuals too, and gather and scatter instead of summing (Korthikanti et al. 2022)."""
    asynchronous_tensor: bool = False
    """Whether products of tensor groups are computed in parts while others are sent."""
    fused_attention: bool = True
    """Whether attention is one kernel, as FlashAttention, which keeps no probabilities."""
    ring_attention: bool = False
    """Whether context groups send keys and values around a ring, in as many parts as workers, and combine partial results."""
    fused_optimizer: bool = True
    virtual_stages: int = 0
    """Stages of each worker of a pipeline; 0 for those of the schedules here, 1 or 2."""
    compile_loss: bool = False
    """Whether the loss is compiled; with full copies it is so with the model."""

    @property
    def workers(self) -> int:
        return prod(getattr(self, degree) for degree in DEGREES)

    @property
    def readers(self) -> int:
        """Workers, or groups of them, that compute different rows."""
        return self.replicate * self.shard

    @property
    def global_batch(self) -> int:
        return self.readers * self.microbatch * self.accumulation

    @property
    def parameter_shards(self) -> int:
        """Workers over which parameters of a stage are spread, beside `tensor`."""
        return 1 if self.full_copies else self.shard * self.context

    @property
    def stages_per_worker(self) -> int:
        return 1 if self.pipeline == 1 or self.schedule == "1F1B" else self.virtual_stages or 2

    @property
    def parts(self) -> int:
        """Number of microbatches of a pass."""
        if self.pipeline == 1:
            return 1
        multiples = (factor * self.pipeline for factor in (4, 3, 2, 1))
        return self.microbatches or next((count for count in multiples if self.microbatch % count == 0), self.pipeline)

    def is_fused(self, layer: Layer) -> bool:
        """Whether a layer's kernels are compiled."""
        return self.compile and (layer.role != "output" or self.full_copies or self.compile_loss)

    def recomputation(self, layer: Layer) -> Checkpointing:
        """How much of a layer is computed again: nothing outside of blocks."""
        return self.checkpointing if layer.role == "block" else "none"

    def division(self, layer: Layer) -> float:
        """The part of a layer's activations that a worker of a tensor group has."""
        undivided = 0.0 if self.sequence_parallel else layer.undivided
        return undivided + (1 - undivided) / self.tensor

    def group(self, devices_per_machine: int, *degrees: str) -> DeviceGroup:
        """The workers that differ in these degrees only."""
        strides = {degree: prod(getattr(self, faster) for faster in DEGREES[place + 1 :]) for place, degree in enumerate(DEGREES)}
        return group(tuple((getattr(self, degree), strides[degree]) for degree in degrees), devices_per_machine)

    def describe(self) -> str:
        """The settings other than their defaults, as `parse_layout` reads them."""
        settings = [f"{field.name}={_text(value)}" for field in fields(self) if (value := getattr(self, field.name)) != field.default]
        return ",".join(settings) or "replicate=1"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_layout(text: str, **further: int) -> ParallelLayout:
    """The layout of `replicate=1,shard=8,…`. Raises ConfigError for an unknown setting, or a value that it does not take."""
    hints = get_type_hints(ParallelLayout)
    names = [field.name for field in fields(ParallelLayout)]
    values: dict[str, object] = dict(further)
    for item in text.split(","):
        name, _, value = item.strip().partition("=")
        if name not in names:
            near = get_close_matches(name, names, n=1, cutoff=0.4) or names
            raise ConfigError(f"layout: {name!r} is no setting of one; choose {' or '.join(near)}")
        values[name] = _parse_value(name, value, hints[name])
    return ParallelLayout(**values)  # type: ignore[arg-type]


def _parse_value(name: str, value: str, hint: object) -> object:
    if hint is bool and value in ("true", "false"):
        return value == "true"
    if hint is int and value.isdecimal() and (int(value) or name in ("microbatches", "virtual_stages")):
        return int(value)
    if value in get_args(hint):
        return value
    allowed = ", ".join(get_args(hint)) or ("true or false" if hint is bool else "a number from 1")
    raise ConfigError(f"layout: {name} is {value!r}; set it to {allowed}")


def check_layout(layout: ParallelLayout, model: ModelCosts, workers: int) -> None:
    """Raise ConfigError for a layout that does not make up the workers, or that training of this model would refuse."""
    if layout.workers != workers:
        degrees = " * ".join(f"{name} {getattr(layout, name)}" for name in DEGREES)
        raise ConfigError(f"layout: {degrees} is {layout.workers} workers, but there are {workers}; set shard to make up {workers}")
    reason = layout_fault(layout, model)
    if reason:
        raise ConfigError(f"layout: {reason}")


def layout_fault(layout: ParallelLayout, model: ModelCosts) -> str:
    """Why training of the model would refuse the layout, with a remedy; empty if it would not."""
    if layout.checkpointing != "none" and not model.recomputes:
        return f"checkpointing is {layout.checkpointing}, but {model.name} has no blocks that can be computed again; set it to none"
    return _degree_fault(layout, model) or _pipeline_fault(layout, model) or _setting_fault(layout)


def _degree_fault(layout: ParallelLayout, model: ModelCosts) -> str:
    if layout.full_copies and layout.workers != layout.replicate:
        return "full_copies is true, with which workers are replicas only; set it to false, or all degrees but replicate to 1"
    if layout.tensor > 1:
        if not model.tensor_divides:
            return f"tensor is {layout.tensor}, but layers of {model.name} cannot be divided; set tensor to 1"
        for name, count in model.tensor_divides:
            if count % layout.tensor:
                return f"tensor is {layout.tensor}, which does not divide {count} {name}; set it to a divisor of {count}"
        if model.shares_weights:
            return f"tensor is {layout.tensor}, but input and output of {model.name} share weights; set tensor to 1"
    if layout.context > 1:
        if not model.positions:
            return f"context is {layout.context}, but rows of {model.name} have no positions to divide; set context to 1"
        if model.positions % (2 * layout.context):
            return (
                f"context is {layout.context}, but {2 * layout.context} does not divide {model.positions} tokens; set it to 1 or lower it"
            )
    return ""


def _pipeline_fault(layout: ParallelLayout, model: ModelCosts) -> str:
    if layout.pipeline == 1:
        return ""
    if not model.has_stages:
        return f"pipeline is {layout.pipeline}, but {model.name} cannot be cut into stages; set pipeline to 1"
    stages = layout.pipeline * layout.stages_per_worker
    if stages > model.blocks:
        return f"pipeline is {layout.pipeline} with {stages} stages, but {model.name} has {model.blocks} blocks; lower pipeline"
    if model.shares_weights:
        return f"pipeline is {layout.pipeline}, but input and output of {model.name} share weights; set pipeline to 1"
    if layout.parts % layout.pipeline or layout.microbatch % layout.parts:
        return (
            f"pipeline is {layout.pipeline} with {layout.parts} microbatches of {layout.microbatch} rows; set microbatches to a multiple "
            "of pipeline that divides the rows"
        )
    if layout.schedule.endswith("ZeroBubble") and (layout.compile or layout.checkpointing != "none"):
        return f"schedule {layout.schedule} divides backward passes; set schedule to Interleaved1F1B, or checkpointing to none"
    if layout.precision == "fp16" or layout.reduce_every_pass:
        return "pipeline allows neither fp16 nor reduce_every_pass; set pipeline to 1"
    return ""


def _setting_fault(layout: ParallelLayout) -> str:
    if layout.tensor > 1 and layout.compile and not layout.sequence_parallel:
        return f"tensor is {layout.tensor} and compile is true, which training does not combine; set compile to false"
    if layout.tensor > 1 and layout.precision == "fp16":
        return f"tensor is {layout.tensor} and precision is fp16, which training does not combine; set precision to bf16"
    if layout.compression != "none" and not layout.full_copies:
        return f"compression is {layout.compression}, which divided gradients do not have; set compression to none"
    if layout.offload and layout.full_copies:
        return "offload is true, which full copies do not have; set offload to false"
    return ""


def enumerate_layouts(
    model: ModelCosts,
    workers: int,
    devices_per_machine: int,
    global_batch: int,
    precision: Literal["fp32", "tf32", "bf16", "fp16"] = "bf16",
    compiles: Sequence[bool] = (True, False),
) -> Iterator[ParallelLayout]:
    """Every layout worth a look that training accepts, with all rows of a worker in one pass: `tensor` within a machine, `pipeline` and
    `context` up to 16, and `shard` over all readers, or over whole machines with replicas between them. Of `compiles`, the first that
    training accepts."""
    if global_batch % workers == 0:
        copies = ParallelLayout(replicate=workers, full_copies=True, precision=precision)
        yield from _enumerate_checkpointing(copies, model, global_batch, compiles)
    for tensor in _divisors(min(workers, devices_per_machine)):
        for pipeline in _divisors(workers // tensor, 16) if workers % tensor == 0 else ():
            for context in _divisors(workers // tensor // pipeline, 16):
                readers = workers // tensor // pipeline // context
                if global_batch % readers == 0:
                    base = ParallelLayout(tensor=tensor, pipeline=pipeline, context=context, precision=precision)
                    yield from _enumerate_shards(base, model, readers, devices_per_machine, global_batch, compiles)


def _enumerate_shards(
    base: ParallelLayout, model: ModelCosts, readers: int, devices_per_machine: int, global_batch: int, compiles: Sequence[bool]
) -> Iterator[ParallelLayout]:
    """Shards over all readers, over those of one machine, and over two and four machines."""
    machine = max(1, devices_per_machine // (base.tensor * base.pipeline * base.context))
    for shard in sorted({readers, *(size for size in (machine, 2 * machine, 4 * machine) if readers % size == 0 and size < readers)}):
        layout = replace(base, shard=shard, replicate=readers // shard)
        schedules: tuple[Schedule, ...] = get_args(Schedule) if base.pipeline > 1 else ("1F1B",)
        for schedule in schedules:
            yield from _enumerate_checkpointing(replace(layout, schedule=schedule), model, global_batch, compiles)


def _enumerate_checkpointing(
    layout: ParallelLayout, model: ModelCosts, global_batch: int, compiles: Sequence[bool]
) -> Iterator[ParallelLayout]:
    """With each kind of checkpointing, compiled where training allows it."""
    kinds: tuple[Checkpointing, ...] = ("none",) if layout.full_copies else ("none", "selective", "full")
    for checkpointing in kinds:
        for compiled in compiles:
            candidate = replace(layout, microbatch=global_batch // layout.readers, checkpointing=checkpointing, compile=compiled)
            if not layout_fault(candidate, model):
                yield candidate
                break


def more_passes(layout: ParallelLayout, model: ModelCosts) -> Iterator[ParallelLayout]:
    """The layout, and the same step in 2, 4, 8, … passes of fewer rows."""
    accumulation = 1
    while layout.microbatch % accumulation == 0:
        candidate = replace(
            layout,
            microbatch=layout.microbatch // accumulation,
            accumulation=accumulation,
            reduce_every_pass=not layout.full_copies and layout.pipeline == 1 and accumulation > 1,
        )
        if not layout_fault(candidate, model):
            yield candidate
        accumulation *= 2


def _divisors(number: int, highest: int = 0) -> list[int]:
    return [count for count in range(1, (highest or number) + 1) if number % count == 0]
