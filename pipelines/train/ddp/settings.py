"""Settings of strategy `ddp`: how gradients are compressed on their way between workers. Imports no torch."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt

from pipelines.config.effects import OnlyInRun, OnlyWith
from pipelines.config.section import Section, expand_kind
from pipelines.config.train.base import Training
from pipelines.config.train.strategy import StrategySettings

if TYPE_CHECKING:
    from pipelines.planning.layouts import ParallelLayout

_POWERSGD = OnlyWith(".kind", ("powersgd",))
_ENDS_IN_TIME = OnlyInRun(
    lambda run, start_step: start_step < run.steps,
    "is {value}, but the run has only {run.steps} steps, all of which would send whole gradients; lower it, or remove compression",
    asks=lambda compression, _: compression.kind == "powersgd",
)


class Compression(Section):
    """The part of their gradients that workers send. `powersgd` and `topk` add the rest to the next gradient, so that none of it is
    lost. The name of a kind alone is short for its defaults: `compression: bf16`."""

    kind: Literal["none", "bf16", "fp16", "powersgd", "topk"] = "none"
    """`bf16` and `fp16` send gradients in that precision, half of the bytes. `powersgd` sends low-rank factors of each matrix, `topk`
    the largest entries."""
    rank: Annotated[PositiveInt, _POWERSGD] = 16
    """For `powersgd`: rank of the factors. An n x m matrix takes rank * (n + m) numbers."""
    start_step: Annotated[NonNegativeInt, _POWERSGD, _ENDS_IN_TIME] = 0
    """For `powersgd`: steps at the start of a run that send whole gradients."""
    share: Annotated[float, Field(ge=0.001, le=0.5), OnlyWith(".kind", ("topk",))] = 0.01
    """For `topk`: share of the entries to send, of every 1,024 consecutive entries of the gradient, with 6 bytes each."""


NamedCompression = Annotated[Compression, BeforeValidator(expand_kind)]


class Settings(StrategySettings):
    """Computes all shards of a worker in one pass; weights of runs with different numbers of workers differ by rounding, and by more with
    dropout or batch norm."""

    implementation = "pipelines.train.ddp.ddp:DataParallel"
    balances = True
    averages = True
    takes_changes = True
    kind: str = "ddp"
    compression: NamedCompression = Compression()
    """`none`, `bf16`, `fp16`, `powersgd` or `topk`, or a section with its settings: workers on a slow network send fewer bytes. It changes
    the weights a little."""

    @classmethod
    def settings_for_layout(cls, layout: "ParallelLayout") -> dict[str, Any] | None:
        if not layout.full_copies:
            return None
        return {"compression": layout.compression} if layout.compression != "none" else {}

    def blocks_of_shards(self, train: Training) -> Iterable[int]:
        return range(train.min_workers, train.max_workers + 1)
