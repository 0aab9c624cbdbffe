"""Settings of strategy `parameter_server`: how many servers hold the parameters, and when they apply an update. Imports no torch."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from pipelines.config.effects import OnlyWith
from pipelines.config.train.base import Training
from pipelines.config.train.strategy import StrategySettings, check_matrices
from pipelines.train.exact.settings import Settings as ExactSettings


class Settings(ExactSettings):
    """Computes as `exact` does, but parameters are held by servers, and workers need not wait for each other."""

    implementation = "pipelines.strategies.parameter_server.parameter_server:ParameterServerStrategy"
    reproducible = False  # but for mode `sync`, which a verification repeats with `exact`
    balances = False
    averages = False
    takes_changes = False
    unsupported = ("lora", "lr_factors")
    kind: str = "parameter_server"
    servers: PositiveInt = 1
    """Servers, each with an equal part of the parameters and of the optimizer's state."""
    mode: Literal["sync", "async", "bounded"] = "sync"
    """`sync` takes a step when all shards' gradients are there; weights are those of `exact`. `async` applies each shard's gradient
    when it arrives, and a slow worker computes fewer; `bounded` too, but no microbatch gets far ahead of the slowest shard."""
    staleness: Annotated[NonNegativeInt | None, OnlyWith(".mode", ("bounded",))] = None
    """For `bounded`: steps by which a microbatch may be ahead of the slowest shard."""
    backups: Annotated[int, Field(ge=0, le=1)] = 0
    """Backups of each server. With 1, the end of a server's process loses no update; with 0, training continues from the last
    checkpoint."""

    @model_validator(mode="after")
    def _staleness_is_bounded(self) -> "Settings":
        if self.mode == "bounded" and self.staleness is None:
            raise ValueError("mode is bounded, but staleness is not set; set it, as to 4, or mode to async")
        return self

    @property
    def is_sync(self) -> bool:
        return self.mode == "sync"

    @property
    def waits_for_all(self) -> bool:
        return self.is_sync  # else a worker takes the next microbatch that nobody has

    def check(self, train: Training) -> None:
        super().check(train)
        check_matrices(train, self.kind)
        if train.precision == "fp16":
            raise ValueError(f"precision is fp16, whose loss scaling strategy {self.kind} does not support; set it to bf16 or fp32")

    def replay_settings(self) -> StrategySettings:
        """Synchronous servers have the weights of `exact`, which needs none."""
        return ExactSettings(threads_per_shard=self.threads_per_shard) if self.is_sync else self
