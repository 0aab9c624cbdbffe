"""Settings of the task `ensemble`, and of the strategy `ensemble_selection`, which chooses its members. Imports no torch."""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, NonNegativeInt

from pipelines.config.effects import OnlyWith
from pipelines.config.section import Section, Text
from pipelines.config.tasks.base import TaskSettings
from pipelines.config.tasks.functions import read_task
from pipelines.config.train.base import Training
from pipelines.config.train.strategy import FixedThreads

_OF_TRAINING = (
    *("optimizer", "lr", "momentum", "weight_decay", "clip_norm", "precision", "compile", "sync_batch_norm", "grad_accum_steps"),
    *("shuffle", "init_from", "freeze", "lora", "lr_factors", "early_stopping", "max_steps", "changes"),
    *("global_batch", "schedule", "warmup", "step_epochs", "lr_gamma"),
)
"""Settings of `train` for what is trained step by step."""
_NO_EFFECT = OnlyWith("train.strategy", remedy="train a network, as by task.kind tabular")


def _check_runs(runs: tuple[str, ...]) -> tuple[str, ...]:
    if len(runs) < 2:
        raise ValueError(
            f"of names {len(runs) or 'no'} run{'' if len(runs) == 1 else 's'}, and an ensemble has two members or more; add runs"
        )
    if twice := next((run for run, count in Counter(runs).items() if count > 1), ""):
        raise ValueError(f"of names run {twice} twice, and the selection itself repeats good members; name each run once")
    if uri := next((run for run in runs if run.startswith("models:/")), ""):
        raise ValueError(f"of names {uri}, but members are runs; give the ID of the run that trained the model, which MLflow shows with it")
    return runs


class Member(Section):
    """A member as its run has recorded it."""

    run: str
    """ID of the run."""
    digest: str
    """Digest of its weights."""
    task: dict[str, Any]
    """Its settings of `task`."""


class EnsembleSettings(TaskSettings):
    """The average of the models of finished runs: of their probabilities, or of the numbers that they predict. Nothing is trained: which
    members count, and how much, is chosen on the validation split (Caruana et al. 2004, "Ensemble selection from libraries of models")."""

    implementation: ClassVar[str] = "pipelines.applications.ensembles.task:Ensemble"
    needs_own_strategy: ClassVar[bool] = True
    takes_missing: ClassVar[bool] = True
    train_defaults: ClassVar[Mapping[str, Any]] = {"epochs": 1}
    origin_reader: ClassVar[str] = "pipelines.applications.ensembles.members:MemberReader"
    origins_setting: ClassVar[str] = "of"
    filled_in: ClassVar[frozenset[str]] = frozenset({"members"})
    kind: Literal["ensemble"] = "ensemble"
    of: Annotated[tuple[Text, ...], AfterValidator(_check_runs)]
    """IDs of the runs whose models are its members, two or more: finished trainings on the same dataset version."""
    use: dict[str, bool] = Field({}, max_length=0, exclude_if=lambda use: not use)
    """Always empty: each member leaves out what its own run does."""
    rounds: NonNegativeInt = 50
    """Rounds of the selection, each of which adds the member that improves the average most, or harms it least, be it for another time.
    Of all rounds the best is kept."""
    members: tuple[Member, ...] = ()
    """What the runs have recorded; filled in before the training."""

    @property
    def distributions(self) -> tuple[str, ...]:
        return tuple(sorted({name for member in self.members for name in read_task(member.task).distributions}))

    @property
    def origins(self) -> dict[str, str]:
        return {member.run: member.digest for member in self.members}


def _is_one_epoch(config: Any) -> bool:
    """Whether there is one epoch, which the task fills in."""
    return bool(config.train.epochs == 1)


class SelectionSettings(FixedThreads):
    """One step computes the members' outputs for the rows of validation, and chooses among all averages of them. The choice is the same for
    any number of workers."""

    implementation = "pipelines.applications.ensembles.strategy:EnsembleSelection"
    tasks = ("ensemble",)
    reproducible = True
    reads_in_order = False
    rules = MappingProxyType(
        {
            **{f"train.{name}": _NO_EFFECT for name in _OF_TRAINING},
            "train.epochs": OnlyWith("train.strategy", remedy="set task.rounds", unless=_is_one_epoch),
        }
    )
    kind: str = "ensemble_selection"

    def steps_per_epoch(self, train: Training) -> int | None:
        return 1

    def describe_steps(self, train: Training) -> str:
        return "selection of members"
