"""Settings of the task `trees`, and of the strategy `boosting`, which trains it. Imports no torch."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt

from pipelines.config.effects import OnlyWith
from pipelines.config.features.base import gives_any
from pipelines.config.tasks.base import TaskSettings
from pipelines.config.train.base import Training
from pipelines.config.train.strategy import StrategySettings
from pipelines.config.tuning import Dimension, around

_OF_NETWORKS = (
    *("optimizer", "momentum", "weight_decay", "clip_norm", "precision", "compile", "sync_batch_norm", "grad_accum_steps"),
    *("shuffle", "init_from", "freeze", "lora", "lr_factors", "changes"),
    *("global_batch", "schedule", "warmup", "step_epochs", "lr_gamma"),
)
"""Settings of `train` for what is trained by gradients."""
_NO_EFFECT = OnlyWith("train.strategy", remedy="train a network, as by task.kind tabular")


class TreesSettings(TaskSettings):
    """Gradient-boosted decision trees for tables, grown by LightGBM. A round adds a tree for each output of the task."""

    implementation: ClassVar[str] = "pipelines.applications.trees.task:Trees"
    needs_own_strategy: ClassVar[bool] = True
    takes_missing: ClassVar[bool] = True
    has_average: ClassVar[bool] = True
    kind: Literal["trees"] = "trees"
    learning_rate: Annotated[float, Field(gt=0)] = 0.05
    """What multiplies the values of a new tree's leaves: shrinkage. With half of it, give twice the `train.epochs`."""
    leaves: Annotated[int, Field(ge=2, le=512)] = 31
    """Maximum number of leaves of a tree."""
    depth: PositiveInt | None = None
    """Maximum number of decisions above a leaf; by default, only `leaves` limits it."""
    min_rows: PositiveInt = 20
    """Least number of rows in a leaf."""
    l2: NonNegativeFloat = 0.0
    """L2 penalty of the values of leaves."""
    feature_share: Annotated[float, Field(gt=0, le=1)] = 0.6
    """Share of the inputs, drawn anew for each tree, that its decisions may be on; all, where it is of fewer than four."""
    bins: Annotated[int, Field(ge=2, le=255)] = 255
    """Maximum number of intervals of a number, between which a decision may divide."""
    categories: Annotated[int, Field(ge=0, le=1_024)] = 256
    """Columns of categories with at most so many values are divided into two sets of values. Those with more are divided by the
    number of the value, which is its rank by frequency for the encoder `vocabulary`."""
    terms: Annotated[PositiveInt, OnlyWith("dataset.features", fits=gives_any("terms"), remedy="encode a feature by terms")] = 300
    """Of a feature encoded by `terms`, trees decide on how often a text has each of so many terms, those that most texts have. A row takes
    4 bytes of memory for each."""
    monotone: dict[str, Literal[-1, 1]] = {}
    """Features that the output may only rise with (1) or fall with (-1): numbers, by the name of their column."""

    @classmethod
    def defaults_for_training(cls, task: Mapping[str, Any]) -> dict[str, Any]:
        """The loop's rate is `learning_rate`."""
        rate = task.get("learning_rate")
        return {"lr": rate if isinstance(rate, int | float) else cls.model_fields["learning_rate"].default, "epochs": 20}

    def search_space(self, train: Training) -> dict[str, Dimension]:
        """The size of trees, and what holds it small. The rate is varied less than that of a network: a low one needs more rounds."""
        leaves = (max(2, self.leaves // 4), min(512, self.leaves * 4))
        rows = sorted({max(1, self.min_rows // 4), self.min_rows, self.min_rows * 4})
        return {
            "task.learning_rate": around(self.learning_rate, 3),
            "task.leaves": Dimension(integers=leaves),
            "task.min_rows": Dimension(choice=tuple(rows)),
            "task.feature_share": Dimension(uniform=(min(0.3, self.feature_share), 1.0)),
            "task.l2": Dimension(choice=tuple(sorted({0.0, 1.0, 10.0, self.l2}))),
        }


def _has_rate_of_trees(config: Any) -> bool:
    """Whether `train.lr` is the rate of the task, which fills it in."""
    return bool(config.train.lr == getattr(config.task, "learning_rate", None))


class BoostingSettings(StrategySettings):
    """A round grows a tree for each output on the rows of all workers. Weights are identical bit for bit for any number of workers."""

    implementation = "pipelines.applications.trees.boosting:Boosting"
    tasks = ("trees",)
    reproducible = True
    reads_in_order = False
    rules = MappingProxyType(
        {
            **{f"train.{name}": _NO_EFFECT for name in _OF_NETWORKS},
            "train.lr": OnlyWith("train.strategy", remedy="set task.learning_rate", unless=_has_rate_of_trees),
        }
    )
    kind: str = "boosting"
    rounds_per_epoch: PositiveInt = 25
    """Rounds after which the trees are validated. `task.learning_rate` multiplies the values of their leaves."""

    def steps_per_epoch(self, train: Training) -> int | None:
        return self.rounds_per_epoch

    def describe_steps(self, train: Training) -> str:
        return "rounds"
