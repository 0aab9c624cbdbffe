"""Settings of the outer step, which brings replicas or clients together. Imports no torch."""

from typing import Annotated, Literal

from pydantic import Field

from pipelines.config.effects import OnlyWith
from pipelines.config.train.strategy import FixedThreads

_NESTEROV = OnlyWith(".outer", ("nesterov",))


class OuterStep(FixedThreads):
    """Settings of a strategy with an outer step."""

    outer: Literal["average", "nesterov"] = "average"
    """The outer step: `average` moves the model by the mean change; `nesterov` (DiLoCo, FedAvgM) takes the mean change for a gradient,
    and steps by SGD with Nesterov momentum."""
    outer_lr: Annotated[float, Field(gt=0), _NESTEROV] = 0.7
    """Learning rate of `nesterov`."""
    outer_momentum: Annotated[float, Field(ge=0, lt=1), _NESTEROV] = 0.9
    """Momentum of `nesterov`."""
