"""Settings of strategy `boosting`: workers grow decision trees together. Imports no torch."""

from types import MappingProxyType
from typing import Any

from pydantic import PositiveInt

from pipelines.config.effects import OnlyWith
from pipelines.config.train.base import Training
from pipelines.config.train.strategy import StrategySettings

_OF_NETWORKS = (
    *("optimizer", "momentum", "weight_decay", "clip_norm", "precision", "compile", "sync_batch_norm", "grad_accum_steps"),
    *("shuffle", "init_from", "freeze", "lora", "lr_factors"),
    *("global_batch", "schedule", "warmup", "step_epochs", "lr_gamma"),
)


_NO_EFFECT = OnlyWith("train.strategy", remedy="train a network, as by task.kind tabular")


def _has_rate_of_trees(config: Any) -> bool:
    """Whether `train.lr` is the rate of the task, which fills it in."""
    return bool(config.train.lr == getattr(config.task, "learning_rate", None))


class Settings(StrategySettings):
    """A round grows a tree for each output on the rows of all workers. Weights are identical bit for bit for any number of workers."""

    implementation = "pipelines.strategies.boosting.boosting:Boosting"
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
