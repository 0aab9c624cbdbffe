"""Settings of strategy `sharded`: how a model is divided over workers, how many replicas of it there are, and what saves memory. Imports
no torch."""

from collections.abc import Iterable, Mapping
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import PositiveInt

from pipelines.config.effects import OnlyWith, is_above_1, is_on_one_worker
from pipelines.config.train.base import Training
from pipelines.config.train.strategy import StrategySettings, check_matrices

if TYPE_CHECKING:
    from pipelines.planning.layouts import ParallelLayout

_WITH_STAGES = OnlyWith(
    ".pipeline",
    fits=lambda degree, _: degree != 1,
    remedy="set train.strategy.pipeline to the number of workers that compute stages",
    unless=is_on_one_worker,
)
_WITH_PASSES = OnlyWith("train.grad_accum_steps", fits=is_above_1, remedy="set train.grad_accum_steps to 2 or more")
Degree = PositiveInt | Literal["auto"]


class Degrees(NamedTuple):
    """The degrees for a number of workers, which is their product. Workers are numbered with the last degree running fastest."""

    replicate: int
    shard: int
    pipeline: int
    context: int
    tensor: int

    @property
    def workers_per_replica(self) -> int:
        """Number of consecutive workers that compute the same rows together, each with a part of the model or of the tokens."""
        return self.pipeline * self.context * self.tensor


class Settings(StrategySettings):
    """Computes as `ddp` does, but the model is spread over the workers, none of which needs memory for all of it. The product of the
    degrees is the number of workers, and one of them may be `auto`. A run may resume with other values of all of these settings."""

    implementation = "pipelines.strategies.sharded.sharded:Sharded"
    takes_changes = True
    unsupported = ("freeze", "lora", "lr_factors")
    placement = frozenset(
        {*Degrees._fields, "schedule", "microbatches", "reshard_after_forward", "reduce_every_pass", "activation_checkpointing", "offload"}
    )
    kind: str = "sharded"

    replicate: Degree = 1
    """Number of replicas of the model; their gradients are summed."""
    shard: Degree = "auto"
    """Number of workers over which the parameters, gradients and optimizer state of a replica are spread."""
    tensor: Degree = 1
    """Number of workers that compute each layer together, each with a part of its weights: for tasks `language` and `tabular`."""
    pipeline: Degree = 1
    """Number of workers that each compute consecutive blocks of the model, a stage, and pass its output on."""
    context: Degree = 1
    """Number of workers that each compute a part of a row's tokens, and send each other keys and values: for task `language`."""
    schedule: Annotated[Literal["1F1B", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble"], _WITH_STAGES] = "1F1B"
    """With `pipeline`: torch's schedule. `1F1B` has one stage per worker, the others two, so that workers wait less and send more; with
    the last two, they also compute gradients of parameters while they would wait."""
    microbatches: Annotated[PositiveInt | Literal["auto"], _WITH_STAGES] = "auto"
    """With `pipeline`: number of parts of a pass that stages compute one after the other, a multiple of `pipeline`; `auto` is four times
    `pipeline`, or less if there are fewer rows."""
    reshard_after_forward: Annotated[bool, OnlyWith(".pipeline", (1,))] = True
    """Frees the gathered parameters of a block after its forward pass, and gathers them again for its backward pass; with false,
    workers send a third less and need memory for all parameters. With `pipeline`, those of a stage stay until the step's end."""
    reduce_every_pass: Annotated[bool, _WITH_PASSES] = False
    """With `grad_accum_steps`: sums gradients over the workers of a replica after every pass, and a worker keeps its share of the sum; with
    false, after the last one, and until then a worker keeps gradients of all parameters."""
    activation_checkpointing: Literal["none", "selective", "full"] = "none"
    """What of a block's forward pass is computed again in its backward pass, to save memory: nothing; all but matrix products,
    convolutions and attention; or all."""

    offload: bool = False
    """Keeps parameters, gradients and optimizer state in the memory of the machine, not of its GPU, where only gathered parameters and
    activations are; the optimizer's steps are computed on the CPU. Without GPUs, all of them are there anyway."""

    def check(self, train: Training) -> None:
        """Raise ValueError for degrees that do not fit each number of workers, and for an optimizer that needs whole matrices."""
        check_matrices(train, self.kind)
        workers = range(train.min_workers, train.max_workers + 1)
        non_default = {name: degree for name in Degrees._fields if (degree := getattr(self, name)) != 1}
        if len(workers) > 1 and non_default not in ({"shard": "auto"}, {"replicate": "auto"}):
            raise ValueError(
                f"workers is {[workers[0], workers[-1]]}, but {_describe(non_default)}, which does not fit every number between them; set "
                "strategy.shard or strategy.replicate to auto and all others to 1, or workers to one number"
            )
        for count in workers:
            self.degrees(count)

    def implementation_for(self, train: Training) -> str:
        has_stages = self.degrees(train.max_workers).pipeline > 1
        return "pipelines.strategies.sharded.pipelined:Pipelined" if has_stages else self.implementation

    def readers(self, workers: int) -> int:
        return workers // self.degrees(workers).workers_per_replica

    def blocks_of_shards(self, train: Training) -> Iterable[int]:
        return (self.readers(train.max_workers),)

    @classmethod
    def settings_for_layout(cls, layout: "ParallelLayout") -> dict[str, Any] | None:
        if layout.full_copies:
            return None
        degrees = {name: degree for name in Degrees._fields if (degree := getattr(layout, name)) > 1}
        settings: dict[str, Any] = {"shard": layout.shard, **degrees}
        if layout.pipeline > 1:
            settings |= {"schedule": layout.schedule, "microbatches": layout.parts}
        if layout.checkpointing != "none":
            settings["activation_checkpointing"] = layout.checkpointing
        if not layout.reshard_after_forward and layout.pipeline == 1:
            settings["reshard_after_forward"] = False
        return settings | {name: True for name in ("reduce_every_pass", "offload") if getattr(layout, name)}

    def flags_for_one_worker(self, train: Training) -> str:
        fixed = [name for name in Degrees._fields if getattr(self, name) not in (1, "auto")]
        return " ".join([super().flags_for_one_worker(train), *(f"--train.strategy.{name} 1" for name in fixed)])

    def degrees(self, workers: int) -> Degrees:
        """The degrees for that number of workers. Raises ValueError if they do not fit it."""
        degrees: dict[str, Degree] = {name: getattr(self, name) for name in Degrees._fields}
        fixed = {name: degree for name, degree in degrees.items() if degree != "auto"}
        free = [f"strategy.{name}" for name in degrees if name not in fixed]
        if len(free) > 1:
            raise ValueError(f"{' and '.join(free)} are auto; set one of them to a number, such as {free[0]} to 1")
        product = prod(fixed.values())
        if not free and product != workers:
            raise ValueError(
                f"{_describe(fixed)}, which makes {product} workers, but workers is {workers}; set one of them to auto, or workers to "
                f"{product}"
            )
        if workers % product:
            raise ValueError(
                f"{_describe(fixed)}, which makes {product} workers, and {free[0]} is auto; {product} must divide {workers}, the number of "
                f"workers: make it one of {divisors(workers)}, or set workers to {-(-workers // product) * product}"
            )
        return Degrees(**{name: workers // product if degree == "auto" else degree for name, degree in degrees.items()})


def _describe(degrees: Mapping[str, Degree]) -> str:
    """The degrees other than 1, or the first of them."""
    texts = [f"strategy.{name} is {degree}" for name, degree in degrees.items()]
    return " and ".join([text for text in texts if not text.endswith(" is 1")] or texts[:1])


def divisors(number: int) -> str:
    """The numbers that divide it, as an error lists them."""
    return ", ".join(str(count) for count in range(1, number + 1) if number % count == 0)
