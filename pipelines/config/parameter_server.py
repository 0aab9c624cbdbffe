"""`train.parameter_server`: servers that hold the parameters, and when they apply an update."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from pipelines.config.section import Section


class ParameterServer(Section):
    """For `strategy: parameter_server`: how many servers hold the parameters, and when they apply an update."""

    servers: PositiveInt = 1
    """Servers, each with an equal part of the parameters and of the optimizer's state."""
    mode: Literal["sync", "async", "bounded"] = "sync"
    """`sync` takes a step when all shards' gradients are there; weights are those of `exact`. `async` applies each shard's gradient
    when it arrives, and a slow worker computes fewer; `bounded` too, but no microbatch gets far ahead of the slowest shard."""
    staleness: NonNegativeInt | None = None
    """For `bounded`: steps by which a microbatch may be ahead of the slowest shard."""
    backups: Annotated[int, Field(ge=0, le=1)] = 0
    """Backups of each server. With 1, the end of a server's process loses no update; with 0, training continues from the last
    checkpoint."""

    @model_validator(mode="after")
    def _staleness_is_bounded(self) -> "ParameterServer":
        if self.mode == "bounded" and self.staleness is None:
            raise ValueError("mode is bounded, but staleness is not set; set it, as to 4, or mode to async")
        return self


def check_parameter_server(settings: ParameterServer, strategy: str, precision: str, sync_batch_norm: bool) -> None:
    """Raise ValueError for settings of `train` that servers do not support."""
    if strategy != "parameter_server":
        return
    if sync_batch_norm:
        raise ValueError(
            "sync_batch_norm sums over workers, which strategy parameter_server does not support; set it to false, or strategy to ddp"
        )
    if precision == "fp16":
        raise ValueError("precision is fp16, whose loss scaling strategy parameter_server does not support; set it to bf16 or fp32")
