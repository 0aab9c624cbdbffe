"""Strategies `ddp` and `exact`: gradients are summed bucket by bucket while the backward pass goes on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.errors import ConfigError
from pipelines.planning.simulation.links import Algorithm, Network, all_reduce_seconds, all_to_all_seconds
from pipelines.planning.simulation.outcome import Outcome, StepFunction, run_steps, split_by_cause
from pipelines.planning.simulation.workload import Cluster, GradientBucket, Workload


@dataclass(frozen=True)
class SimulatedDdp:
    """Every worker computes one pass, and buckets are summed one after the other, each once all workers have it."""

    algorithm: Algorithm = "ring"
    overlaps: bool = True
    """False where sending takes the cores that compute, as on CPUs that are all busy."""
    bytes_share: float = 1.0
    """Of the gradients, that is sent: 0.5 with bf16."""
    start_seconds: float = 0.0
    """From a bucket's being ready until its sum begins, such as Horovod's wait for its next cycle."""

    def simulate(self, workload: Workload, cluster: Cluster, steps: int, seed: int) -> Outcome:
        sums = [
            all_reduce_seconds(bucket.bytes * self.bytes_share, cluster.workers, cluster.network, self.algorithm)
            for bucket in workload.buckets
        ]
        start = self.start_seconds if cluster.workers > 1 else 0.0
        step = step_function(workload, passes=np.ones(cluster.workers), sums=sums, overlaps=self.overlaps, start_seconds=start)
        return run_steps(step, cluster, steps, seed, cluster.workers, workload.compute_seconds)


@dataclass(frozen=True)
class SimulatedExact:
    """One pass per shard; partial sums go to all workers, which each finish one part of the tree and gather the others.

    A workload is one shard's pass. Its gradients are summed during a worker's last pass.
    """

    shards: int
    overlaps: bool = True
    add_bytes_per_second: float = float("inf")
    """Rate at which a worker adds a partial sum to another."""

    def simulate(self, workload: Workload, cluster: Cluster, steps: int, seed: int) -> Outcome:
        if not cluster.workers <= self.shards:
            raise ConfigError(f"{cluster.workers} workers over {self.shards} shards: every worker owns at least one; reduce the workers")
        edges = np.arange(cluster.workers + 1) * self.shards // cluster.workers
        passes, node_counts = np.diff(edges).astype(float), partial_sums(self.shards, cluster.workers)
        sums = [self._sum_seconds(bucket.bytes, max(node_counts), cluster.workers, cluster.network) for bucket in workload.buckets]
        pass_additions = (passes.max() - 1) * workload.gradient_bytes / self.add_bytes_per_second
        step = step_function(workload, passes, sums, self.overlaps, extra_seconds=float(pass_additions))
        return run_steps(step, cluster, steps, seed, self.shards, workload.compute_seconds)

    def _sum_seconds(self, size: float, nodes: int, workers: int, network: Network) -> float:
        """Reduce-scatter of `nodes` partial sums by all-to-all, additions of this worker's part, and all-gather."""
        if workers == 1:
            return 0.0
        share = (workers - 1) / workers
        scatter = all_to_all_seconds(share * size * nodes, workers, network) + (nodes - 1) * (workers - 1) * network.between.latency_seconds
        gather = all_to_all_seconds(share * size, workers, network)
        return scatter + share * size * nodes / self.add_bytes_per_second + gather


def step_function(
    workload: Workload,
    passes: np.ndarray,
    sums: list[float],
    overlaps: bool = True,
    start_seconds: float = 0.0,
    extra_seconds: float = 0.0,
) -> StepFunction:
    """A step of so many passes of each worker, shape (workers,), of which the last one's buckets are summed in `sums` seconds each."""
    pass_seconds = workload.forward_seconds + workload.backward_seconds

    def step(factors: np.ndarray) -> tuple[float, Mapping[str, float]]:
        before = factors * ((passes - 1) * pass_seconds + workload.forward_seconds) + extra_seconds
        summed = sum_buckets(workload.buckets, sums, before, factors * workload.backward_seconds, overlaps, start_seconds)
        end = summed + float(factors.max()) * workload.optimizer_seconds
        return end, split_by_cause(end, factors * (passes * pass_seconds + workload.optimizer_seconds) + extra_seconds)

    return step


def sum_buckets(
    buckets: Sequence[GradientBucket],
    sums: Sequence[float],
    before: np.ndarray,
    backward: np.ndarray,
    overlaps: bool = True,
    start_seconds: float = 0.0,
) -> float:
    """When all workers have computed and all buckets are summed.

    `before` is when each worker's backward pass begins, and `backward` how long it takes, both of shape (workers,). A sum begins once all
    workers have the bucket and the sum before it is done.
    """
    computed = float((before + backward).max())
    free = 0.0 if overlaps else computed
    for bucket, seconds in zip(buckets, sums, strict=True):
        free = max(free, float((before + bucket.ready * backward).max()) + start_seconds) + seconds
    return max(computed, free)


def partial_sums(shards: int, workers: int) -> list[int]:
    """For each worker, how many nodes of the binary tree over the shards cover its block: 1 where the number of workers is a power of two
    that divides the shards, else up to 2 log2(shards)."""
    return [_count_nodes(rank * shards // workers, (rank + 1) * shards // workers, 0, shards) for rank in range(workers)]


def _count_nodes(first: int, last: int, start: int, stop: int) -> int:
    """Nodes over [start, stop) and below it that cover [first, last)."""
    if stop <= first or last <= start:
        return 0
    if first <= start and stop <= last:
        return 1
    middle = start + (1 << (stop - start - 1).bit_length() - 1)
    return _count_nodes(first, last, start, middle) + _count_nodes(first, last, middle, stop)
