"""`train.parallel`: over how many workers a model's parameters are spread, how many replicas of it there are, and what saves memory."""

from typing import Literal

from pydantic import PositiveInt

from pipelines.config.section import Section
from pipelines.config.strategies import STRATEGIES

Degree = PositiveInt | Literal["auto"]


class Parallel(Section):
    """Strategy `sharded`: the product of the degrees is the number of workers, and one of them may be `auto`. A run may resume with
    other values of all of these settings."""

    replicate: Degree = 1
    """Number of replicas of the model; their gradients are summed."""
    shard: Degree = "auto"
    """Number of workers over which the parameters, gradients and optimizer state of a replica are spread."""
    reshard_after_forward: bool = True
    """Frees the gathered parameters of a block after its forward pass, and gathers them again for its backward pass; with false,
    workers send a third less and need memory for all parameters."""
    reduce_every_pass: bool = False
    """With `accumulate`: sums gradients over the workers of a replica after every pass, and a worker keeps its share of the sum; with
    false, after the last one, and until then a worker keeps gradients of all parameters."""
    activation_checkpointing: Literal["none", "selective", "full"] = "none"
    """What of a block's forward pass is computed again in its backward pass, to save memory: nothing; all but matrix products,
    convolutions and attention; or all."""

    def degrees(self, workers: int) -> tuple[int, int]:
        """The number of replicas, and of workers over which each is spread. Raises ValueError if they do not fit the number of workers."""
        if self.replicate == "auto" and self.shard == "auto":
            raise ValueError("parallel.replicate and parallel.shard are auto; set one of them to a number, such as replicate to 1")
        if self.replicate != "auto" and self.shard != "auto":
            if self.replicate * self.shard != workers:
                raise ValueError(
                    f"parallel.replicate is {self.replicate} and parallel.shard {self.shard}, which makes {self.replicate * self.shard} "
                    f"workers, but workers is {workers}; set one of the two to auto, or workers to {self.replicate * self.shard}"
                )
            return self.replicate, self.shard
        name, given = ("replicate", self.replicate) if self.shard == "auto" else ("shard", self.shard)
        assert given != "auto", "one of the two is a number"
        if workers % given:
            fitting = [str(count) for count in range(1, workers + 1) if workers % count == 0]
            raise ValueError(
                f"parallel.{name} is {given}; it must divide {workers}, the number of workers: choose from {', '.join(fitting)}"
            )
        return (given, workers // given) if name == "replicate" else (workers // given, given)


def check_parallel(settings: Parallel, strategy: str, workers: range) -> None:
    """Raise ValueError for degrees that do not fit each of these numbers of workers, or that the strategy does not use."""
    if strategy in STRATEGIES and strategy != "sharded" and settings != Parallel():
        raise ValueError(f"parallel is set, but strategy is {strategy}; set strategy to sharded, or remove parallel")
    if strategy != "sharded":
        return
    if len(workers) > 1 and settings.replicate != 1 and settings.shard != 1:
        raise ValueError(
            f"workers is {[workers[0], workers[-1]]}, but parallel.replicate {settings.replicate} and parallel.shard {settings.shard} "
            "do not fit every number of workers between them; set one of the two to 1 and the other to auto, or workers to one number"
        )
    for count in workers:
        settings.degrees(count)
