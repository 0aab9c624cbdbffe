"""The passes and gradients of one data-parallel worker in a step, and the workers that compute them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from pipelines.errors import ConfigError
from pipelines.planning.simulation.links import IDEAL_NETWORK, Network
from pipelines.planning.simulation.stragglers import EQUAL_WORKERS, SpeedVariation, step_factors, worker_factors


@dataclass(frozen=True)
class GradientBucket:
    """Gradients that are sent together."""

    bytes: float
    ready: float = 1.0
    """Share of the backward pass after which all of them are there."""


@dataclass(frozen=True)
class Workload:
    """One forward and backward pass of the model over one worker's rows, on one worker without others."""

    forward_seconds: float
    backward_seconds: float
    buckets: tuple[GradientBucket, ...] = ()
    """In the order in which the backward pass has them."""
    optimizer_seconds: float = 0.0
    blocks: int = 1
    """Equal blocks of the model, one after the other."""
    activation_bytes: float = 0.0
    """A block's output, for all rows."""

    def __post_init__(self) -> None:
        shares = [bucket.ready for bucket in self.buckets]
        if self.compute_seconds <= 0 or self.blocks < 1 or shares != sorted(shares):
            raise ConfigError(
                f"{self.compute_seconds} seconds in {self.blocks} blocks, and buckets ready at {shares}: seconds are above 0, a model has "
                "a block, and buckets come in the order of the backward pass; sort them by ready"
            )

    @property
    def compute_seconds(self) -> float:
        return self.forward_seconds + self.backward_seconds + self.optimizer_seconds

    @property
    def gradient_bytes(self) -> float:
        return sum(bucket.bytes for bucket in self.buckets)

    def scale_rows(self, factor: float) -> "Workload":
        """The passes over `factor` times the rows; parameters and their update stay."""
        return replace(
            self,
            forward_seconds=self.forward_seconds * factor,
            backward_seconds=self.backward_seconds * factor,
            activation_bytes=self.activation_bytes * factor,
        )


@dataclass(frozen=True)
class Cluster:
    """Equal workers, but for chance."""

    workers: int
    network: Network = IDEAL_NETWORK
    stragglers: SpeedVariation = EQUAL_WORKERS
    workers_per_core: float = 1.0
    """Above 1, workers take turns on too few cores, and each computes so many times longer."""

    def __post_init__(self) -> None:
        if self.workers < 1 or self.workers_per_core <= 0:
            raise ConfigError(f"{self.workers} workers, {self.workers_per_core} on a core: both are above 0; set workers to 1 or more")

    def factors(self, seed: int, steps: int) -> Iterable[np.ndarray]:
        """For each step the factors of all workers' seconds of computing, each of shape (workers,)."""
        worker_speeds = worker_factors(self.stragglers, self.workers, seed) * max(self.workers_per_core, 1.0)
        return (worker_speeds * step_factors(self.stragglers, self.workers, seed, step) for step in range(steps))


def even_buckets(gradient_bytes: float, count: int) -> tuple[GradientBucket, ...]:
    """Equal buckets, of a model whose backward pass has equally many gradients at all times."""
    return tuple(GradientBucket(gradient_bytes / count, (number + 1) / count) for number in range(count))


def fuse_layers(layers: Iterable[tuple[float, float]], capacity_bytes: float) -> tuple[GradientBucket, ...]:
    """Buckets of at most `capacity_bytes`, but for single layers that are larger.

    `layers` are (gradient bytes, part of the backward pass's seconds in any unit), the one that the backward pass computes first coming
    first. A bucket is full before the layer that does not fit, as in DistributedDataParallel and in Horovod's tensor fusion.
    """
    sizes = list(layers)
    all_seconds = sum(seconds for _, seconds in sizes)
    buckets: list[GradientBucket] = []
    pending, elapsed = 0.0, 0.0
    for size, seconds in sizes:
        if pending and pending + size > capacity_bytes:
            buckets.append(GradientBucket(pending, elapsed / all_seconds))
            pending = 0.0
        pending, elapsed = pending + size, elapsed + seconds
    return (*buckets, GradientBucket(pending, 1.0)) if pending else tuple(buckets)
