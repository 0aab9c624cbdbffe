"""Base class of the settings of a strategy, by which the rest of the project asks what it needs to know of one, and the kinds that exist:
each is a class of settings in a folder of its own, of this project or of somebody else. Imports no torch."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

from pydantic import BeforeValidator, ConfigDict, PositiveInt, SerializeAsAny, ValidationInfo

from pipelines.config.effects import OnlyWith
from pipelines.config.kinds import Kinds
from pipelines.config.section import Section
from pipelines.config.train.base import Training

if TYPE_CHECKING:
    from pipelines.planning.layouts import ParallelLayout

DEFAULT_KIND = "ddp"
ONE_WORKER = "--train.workers 1"
"""The flag with which a command trains on one worker."""


class UnitOfWork(NamedTuple):
    """The kind of work that one worker computes as a whole, and how many units of it a step has."""

    name: str
    number: int


class StrategySettings(Section):
    """Base class of the settings of all strategies. Derive your own from it, in a module that does not import torch."""

    implementation: ClassVar[str]
    """`module:Class` of the `pipelines.train.strategy.Strategy` that these settings configure; imported only by drivers and workers."""
    tasks: ClassVar[tuple[str, ...]] = ()
    """The kinds of tasks that it trains; empty for all that have gradients."""
    reproducible: ClassVar[bool] = False
    """Whether the model is bitwise the same for any number of workers. Only then can a run be verified."""
    balances: ClassVar[bool] = False
    """Whether the strategy implements `assign_shards` and tells its clock of passes and exchange, which `train.balance: auto` needs."""
    reads_in_order: ClassVar[bool] = True
    """Whether the rows of a step are those of the shards' order, on which `train.shuffle_window` and `train.remainder` have an effect."""
    averages: ClassVar[bool] = False
    """Whether the strategy implements `average_weights`, which `train.ema_decay` needs."""
    takes_changes: ClassVar[bool] = False
    """Whether the strategy takes steps at the rate that it is given, and implements `set_weight_decay`, which `train.changes` needs."""
    unsupported: ClassVar[tuple[str, ...]] = ()
    """Settings of `train` with which the strategy cannot train, such as `freeze`."""
    placement: ClassVar[frozenset[str]] = frozenset()
    """Settings that only say where the model is computed: a run may resume with other values."""
    rules: ClassVar[Mapping[str, OnlyWith]] = {}
    """Conditions of settings outside of this section, by dotted name."""
    kind: str
    """One of the known kinds, such as `ddp`, or `module:Class` of your own settings."""

    def check(self, train: Training) -> None:
        """Raise ValueError for settings that do not fit the rest of `train`."""

    def check_columns(self, encoders: Mapping[str, str], place: str) -> None:
        """Raise ConfigError for settings that do not fit the tensor columns of `place`, whose `encoders` are given by name. Needs no
        rows."""

    def implementation_for(self, train: Training) -> str:
        """`module:Class` of the strategy for these settings of `train`."""
        return self.implementation

    def unit_of_work(self, train: Training) -> UnitOfWork:
        """The units that workers share: each computes some of them as a whole."""
        return UnitOfWork("shard", train.shards)

    def readers(self, workers: int) -> int:
        """The number of workers, or of groups of workers that compute the same rows, between which rows are divided."""
        return workers

    def blocks_of_shards(self, train: Training) -> Iterable[int]:
        """Into how many blocks of shards a step may be divided, each of which one pass computes, or `grad_accum_steps` passes; none if a
        pass computes other rows."""
        return ()

    def flags_for_one_worker(self, train: Training) -> str:
        """The flags with which the same command goes on with the run on one worker."""
        return f"{ONE_WORKER} --train.balance equal" if train.balance.kind == "auto" else ONE_WORKER

    def steps_per_epoch(self, train: Training) -> int | None:
        """The number of steps of an epoch; None for as many as its rows have global batches."""
        return None

    def describe_steps(self, train: Training) -> str:
        """The plural of a step, as in "40 steps of 512"."""
        return f"steps of {train.global_batch}"

    @property
    def waits_for_all(self) -> bool:
        """Whether a worker that has computed its units waits for the others in every step."""
        return True

    @property
    def needs_secret_seed(self) -> bool:
        """Whether who knows `train.seed` could undo what the strategy hides. Such a seed stands in nothing that is published."""
        return False

    @classmethod
    def settings_for_layout(cls, layout: "ParallelLayout") -> dict[str, Any] | None:
        """The settings of this kind that train in a planned layout, without those that have their defaults; None if it has no such
        layouts."""
        return None

    def rows_per_pass(self, train: Training) -> int:
        """Rows of every pass, of a strategy whose passes are the same for any number of workers; 0 for others."""
        return 0

    def replay_settings(self) -> "StrategySettings":
        """The settings that a verification trains with, of a strategy whose model is bitwise the same."""
        return self


class FixedThreads(StrategySettings):
    """Settings of strategies whose sums do not depend on workers: each pass has a fixed number of threads."""

    threads_per_shard: PositiveInt = 1
    """Threads per pass. One and two threads give different sums, so the number affects the weights."""

    def check(self, train: Training) -> None:
        if train.sync_batch_norm:
            raise ValueError(
                f"sync_batch_norm sums over workers, which strategy {self.kind} does not support; set it to false, or strategy to ddp"
            )


def check_not_compiled(train: Training, kind: str) -> None:
    """Raise ValueError if a strategy is to compile the model that does not support it."""
    if train.compile:
        raise ValueError(f"compile is true, which strategy {kind} does not support; set it to false")


def check_matrices(train: Training, kind: str) -> None:
    """Raise ValueError if a strategy that divides matrices is to change them as a whole."""
    if train.optimizer == "muon":
        raise ValueError(f"optimizer is muon, which needs whole matrices, and strategy {kind} divides them; set it to adamw")


STRATEGIES = Kinds(StrategySettings, "kind", "lockstep.strategies", "pipelines.train", example=DEFAULT_KIND, has_default=True)


def strategy_kinds_with(attribute: str) -> list[str]:
    """The known kinds whose settings say so of themselves, as by `balances`."""
    return [kind for kind, settings in STRATEGIES.by_name.items() if getattr(settings, attribute)]


class Unavailable(StrategySettings):
    """A strategy that a run has recorded, and that this machine does not have. Its model can be used, and not be trained."""

    model_config = ConfigDict(extra="allow")
    implementation = ""

    def implementation_for(self, train: Training) -> str:
        return STRATEGIES.class_for(self.kind).implementation  # which raises, unless it has been installed since


def _parse_settings(value: Any, validation: ValidationInfo) -> Any:
    """The section as settings of the kind that it names. With `recorded` in the context, of a kind that there is no more too."""
    section = STRATEGIES.expand(value)
    if validation.context and validation.context.get("recorded") and isinstance(section, dict):
        try:
            STRATEGIES.class_for(section["kind"])
        except ValueError:
            return Unavailable.model_validate(section)
    return STRATEGIES.parse(section, validation)


NamedStrategy = Annotated[SerializeAsAny[StrategySettings], BeforeValidator(_parse_settings)]
