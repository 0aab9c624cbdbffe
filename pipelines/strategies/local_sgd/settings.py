"""Settings of strategy `local_sgd`: replicas that take steps of their own, and how they are brought together. Imports no torch."""

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import PositiveInt

from pipelines.config.effects import OnlyInRun
from pipelines.config.train.base import Training
from pipelines.config.train.strategy import UnitOfWork, check_not_compiled
from pipelines.strategies.outer_step import OuterStep

_HAS_OUTER_STEP = OnlyInRun(
    lambda run, inner_steps: inner_steps <= run.steps,
    "is {value}, but the run has only {run.steps} steps, so that no outer step would bring replicas together; lower it",
)


class Settings(OuterStep):
    """Every replica takes steps on its own rows, and all are brought together after every few steps. Weights are identical bit for bit for
    any number of workers, which send little."""

    implementation = "pipelines.strategies.local_sgd.local_sgd:LocalSgd"
    reproducible = True
    kind: str = "local_sgd"

    replicas: PositiveInt = 4
    """Number of replicas of the model; it divides `shards`. `workers` may be any number up to it, and does not change the weights."""
    inner_steps: Annotated[PositiveInt, _HAS_OUTER_STEP] = 16
    """Steps that every replica takes on its own between two outer steps, which bring all replicas together."""
    deltas: Literal["fp32", "int8"] = "fp32"
    """What an outer step sends of each parameter's change: all its bits, or 8 with error feedback."""

    def check(self, train: Training) -> None:
        if train.shards % self.replicas:
            fitting = [str(count) for count in range(1, train.shards + 1) if train.shards % count == 0]
            raise ValueError(
                f"strategy.replicas is {self.replicas}; it must divide {train.shards}, the number of shards: choose from "
                f"{', '.join(fitting)}"
            )
        if train.max_workers > self.replicas:
            raise ValueError(
                f"workers is {train.max_workers}; it must be at most {self.replicas}, strategy.replicas; reduce it, or raise that"
            )
        check_not_compiled(train, self.kind)
        super().check(train)

    def unit_of_work(self, train: Training) -> UnitOfWork:
        return UnitOfWork("replica", self.replicas)

    def blocks_of_shards(self, train: Training) -> Iterable[int]:
        return (self.replicas,)
