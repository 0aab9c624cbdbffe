"""Strategy `sharded` without a pipeline: parameters, layers or tokens are spread over groups of workers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from pipelines.errors import ConfigError
from pipelines.planning.simulation.data_parallel import sum_buckets
from pipelines.planning.simulation.links import Network, NetworkLink, all_reduce_seconds, reduce_scatter_seconds
from pipelines.planning.simulation.outcome import Outcome, run_steps, split_by_cause
from pipelines.planning.simulation.workload import Cluster, Workload


@dataclass(frozen=True)
class SimulatedSharded:
    """Workers gather a block's parameters before they compute it, and reduce and scatter its gradients after it.

    All collectives of a step share one stream, in the order in which workers ask for them. Gradients count as many bytes as parameters.
    """

    replicas: int = 1
    """Of the spread model; their gradients are summed after each block."""
    reshards: bool = True
    """Whether a block is gathered again for its backward pass."""
    prefetches: bool = True
    """Whether a block is gathered while the one before it is computed."""

    def simulate(self, workload: Workload, cluster: Cluster, steps: int, seed: int) -> Outcome:
        shard = group_count(cluster.workers, self.replicas)
        size = workload.gradient_bytes / workload.blocks
        gather = reduce_scatter_seconds(size, shard, cluster.network)
        reduce = gather + all_reduce_seconds(size / shard, self.replicas, network_of_strided(cluster.network, shard))
        update_seconds = workload.optimizer_seconds / shard

        def step(factors: np.ndarray) -> tuple[float, Mapping[str, float]]:
            end = self._passes_end(workload, factors, gather, reduce) + float(factors.max()) * update_seconds
            return end, split_by_cause(end, factors * (workload.forward_seconds + workload.backward_seconds + update_seconds))

        return run_steps(step, cluster, steps, seed, cluster.workers, workload.compute_seconds)

    def _passes_end(self, workload: Workload, factors: np.ndarray, gather: float, reduce: float) -> float:
        """When the last gradients are reduced. Only two blocks' parameters are in memory at a time: a block's gather starts when the
        block before it is begun, once the one before that is freed."""
        blocks, computed, stream, gathered = workload.blocks, np.zeros(len(factors)), gather, gather
        for block in range(2 * blocks):
            is_backward = block >= blocks
            begin = np.maximum(computed, gathered)
            computed = begin + factors * (workload.backward_seconds if is_backward else workload.forward_seconds) / blocks
            gathered = 0.0
            if block + 1 < blocks or (self.reshards and block + 1 < 2 * blocks):
                stream = gathered = max(stream, float((begin if self.prefetches else computed).max())) + gather
            if is_backward:
                stream = max(stream, float(computed.max())) + reduce
        return max(stream, float(computed.max()))


@dataclass(frozen=True)
class SimulatedTensor:
    """A group of consecutive workers computes each layer together, and sums two activations per block and pass (Shoeybi et al. 2019)."""

    degree: int

    def simulate(self, workload: Workload, cluster: Cluster, steps: int, seed: int) -> Outcome:
        replicas = group_count(cluster.workers, self.degree)
        activations = 2 * workload.blocks * all_reduce_seconds(workload.activation_bytes, self.degree, cluster.network)
        strided = network_of_strided(cluster.network, self.degree)
        sums = [all_reduce_seconds(bucket.bytes / self.degree, replicas, strided) for bucket in workload.buckets]

        def step(factors: np.ndarray) -> tuple[float, Mapping[str, float]]:
            slowest = factors.reshape(replicas, self.degree).max(axis=1) / self.degree
            forward = slowest * workload.forward_seconds + activations
            backward = slowest * workload.backward_seconds + activations
            end = sum_buckets(workload.buckets, sums, forward, backward) + float(slowest.max()) * workload.optimizer_seconds
            return end, split_by_cause(end, factors * workload.compute_seconds / self.degree)

        return run_steps(step, cluster, steps, seed, replicas, workload.compute_seconds)


@dataclass(frozen=True)
class SimulatedContext:
    """Each worker of a group computes a part of every row's tokens, and keys and values go round the group while it attends (Liu,
    Zaharia and Abbeel 2023). All workers have all parameters."""

    degree: int
    attention_share: float
    """Of a block's seconds, that is attention and can hide the messages."""

    def simulate(self, workload: Workload, cluster: Cluster, steps: int, seed: int) -> Outcome:
        replicas = group_count(cluster.workers, self.degree)
        network = cluster.network
        is_within = self.degree <= network.workers_per_machine
        link = network.within if is_within else NetworkLink(network.ring_rate(cluster.workers), network.between.latency_seconds)
        message = link.seconds(2 * workload.activation_bytes / self.degree) if self.degree > 1 else 0.0
        sums = [all_reduce_seconds(bucket.bytes, cluster.workers, network) for bucket in workload.buckets]

        def pass_seconds(slowest: np.ndarray, seconds: float, message_seconds: float) -> np.ndarray:
            matmuls, attention = slowest * seconds * (1 - self.attention_share), slowest * seconds * self.attention_share
            round_seconds = attention / workload.blocks / self.degree
            rounds = (self.degree - 1) * np.maximum(round_seconds, message_seconds) + round_seconds
            return np.asarray(matmuls + workload.blocks * rounds)

        def step(factors: np.ndarray) -> tuple[float, Mapping[str, float]]:
            slowest = factors.reshape(replicas, self.degree).max(axis=1) / self.degree
            forward = pass_seconds(slowest, workload.forward_seconds, message)
            backward = pass_seconds(slowest, workload.backward_seconds, 2 * message)
            end = sum_buckets(workload.buckets, sums, forward, backward) + float(factors.max()) * workload.optimizer_seconds
            passes = workload.forward_seconds + workload.backward_seconds
            return end, split_by_cause(end, factors * (passes / self.degree + workload.optimizer_seconds))

        return run_steps(step, cluster, steps, seed, replicas, workload.compute_seconds)


def group_count(workers: int, degree: int) -> int:
    """Groups of `degree` workers. Raises ConfigError if a group is incomplete."""
    if degree < 1 or workers % degree:
        raise ConfigError(f"{workers} workers in groups of {degree}: the degree must divide them; set workers to a multiple of {degree}")
    return workers // degree


def network_of_strided(network: Network, stride: int) -> Network:
    """The network as workers see it whose ranks are `stride` apart, while all such groups send at the same time."""
    per_machine = network.workers_per_machine
    shared = NetworkLink(network.between.bytes_per_second / min(per_machine, stride), network.between.latency_seconds)
    in_rack = network.machines_per_rack and max(1, network.machines_per_rack * per_machine // max(stride, per_machine))
    return replace(network, between=shared, workers_per_machine=max(1, per_machine // stride), machines_per_rack=in_rack)
