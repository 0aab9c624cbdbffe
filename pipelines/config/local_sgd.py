"""`train.local_sgd`: replicas of the model that take steps of their own, and how they are brought together."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from pipelines.config.section import Section


class OuterStep(Section):
    outer: Literal["average", "nesterov"] = "average"
    """The outer step: `average` moves the model by the mean change; `nesterov` (DiLoCo, FedAvgM) takes the mean change for a gradient,
    and steps by SGD with Nesterov momentum."""
    outer_lr: Annotated[float, Field(gt=0)] = 0.7
    """Learning rate of `nesterov`."""
    outer_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Momentum of `nesterov`."""


class LocalSgd(OuterStep):
    """Strategy `local_sgd`: every replica takes steps on its own rows, and all are brought together after every few steps."""

    replicas: PositiveInt = 4
    """Number of replicas of the model; it divides `shards`. `workers` may be any number up to it, and does not change the weights."""
    inner_steps: PositiveInt = 16
    """Steps that every replica takes on its own between two outer steps, which bring all replicas together."""
    deltas: Literal["fp32", "int8"] = "fp32"
    """What an outer step sends of each parameter's change: all its bits, or 8 with error feedback."""


def check_replicas(settings: LocalSgd, strategy: str, shards: int, max_workers: int) -> None:
    """Raise ValueError for settings that do not fit the rest of `train`."""
    if strategy != "local_sgd":
        return
    if shards % settings.replicas:
        fitting = [str(count) for count in range(1, shards + 1) if shards % count == 0]
        raise ValueError(
            f"local_sgd.replicas is {settings.replicas}; it must divide {shards}, the number of shards: choose from {', '.join(fitting)}"
        )
    if max_workers > settings.replicas:
        raise ValueError(f"workers is {max_workers}; it must be at most {settings.replicas}, local_sgd.replicas; reduce it, or raise that")
