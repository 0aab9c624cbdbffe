"""Links between workers, and how long collectives take on them.

A message of b bytes takes latency + b / rate, the alpha-beta model (Hockney 1994). Collectives follow Thakur, Rabenseifner and Gropp,
"Optimization of Collective Communication Operations in MPICH", 2005. In a ring a chunk passes every border between neighbours once, so
its latency is the sum over its way: hops within a machine are shorter than those between machines.
"""

from dataclasses import dataclass
from math import ceil, inf, log2
from typing import Literal

from pipelines.errors import ConfigError

Algorithm = Literal["ring", "hierarchical", "tree"]


@dataclass(frozen=True)
class NetworkLink:
    """One direction of a link; both directions work at the same time."""

    bytes_per_second: float = inf
    latency_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not (self.bytes_per_second > 0 and self.latency_seconds >= 0):
            raise ConfigError(f"{self}: a rate is above 0, and a latency is not below 0; set bytes_per_second and latency_seconds so")

    def seconds(self, size: float) -> float:
        """For one message of `size` bytes."""
        return self.latency_seconds + size / self.bytes_per_second


IDEAL_LINK = NetworkLink()
"""Takes no time."""


@dataclass(frozen=True)
class Network:
    """Machines of several workers each, in racks that are joined by a spine."""

    between: NetworkLink = IDEAL_LINK
    """A machine's network interface, which its workers share."""
    within: NetworkLink = IDEAL_LINK
    """Between two workers of a machine."""
    workers_per_machine: int = 1
    machines_per_rack: int = 0
    """0 is one rack for all of them."""
    oversubscription: float = 1.0
    """What the machines of a rack could send together, over what the rack's way to the spine carries."""
    is_packed: bool = True
    """Whether ranks are numbered rack by rack, so that only one message at a time of a ring leaves a rack."""

    def __post_init__(self) -> None:
        if self.workers_per_machine < 1 or self.machines_per_rack < 0 or self.oversubscription < 1:
            raise ConfigError(
                f"{self}: a machine has a worker at least, a rack no negative number of machines, and oversubscription is at least 1; "
                "set them so"
            )

    def machines(self, workers: int) -> int:
        return ceil(workers / self.workers_per_machine)

    def ring_rate(self, workers: int) -> float:
        """Bytes per second at the slowest border between two neighbours of a ring through all workers."""
        if self.machines(workers) == 1:
            return self.within.bytes_per_second
        return min(self.within.bytes_per_second if self.workers_per_machine > 1 else inf, self.machine_ring_rate(workers))

    def machine_ring_rate(self, workers: int) -> float:
        """Bytes per second at the slowest border of a ring through the machines."""
        rate = self.between.bytes_per_second
        if not self.machines_per_rack or self.machines(workers) <= self.machines_per_rack:
            return rate
        messages = 1 if self.is_packed else self.machines_per_rack
        return min(rate, rate * self.machines_per_rack / self.oversubscription / messages)

    def scatter_rate(self, workers: int) -> float:
        """Bytes per second of one worker that sends equal parts to all others while they do the same, between machines. A machine's
        workers share its interface, and a rack's machines its way to the spine."""
        machines, in_rack = self.machines(workers), self.machines_per_rack
        if machines == 1:
            return self.within.bytes_per_second
        per_machine = min(self.workers_per_machine, workers)
        leaving_machine = (workers - per_machine) / (workers - 1)
        rate = self.between.bytes_per_second / per_machine / leaving_machine
        if in_rack and machines > in_rack:
            leaving_rack = (workers - per_machine * in_rack) / (workers - 1)
            rate = min(rate, self.between.bytes_per_second / self.oversubscription / per_machine / leaving_rack)
        return rate


IDEAL_NETWORK = Network()


def all_reduce_seconds(size: float, workers: int, network: Network, algorithm: Algorithm = "ring") -> float:
    """Seconds in which all workers have the sum of their `size` bytes.

    `ring` is one ring through all workers. `hierarchical` reduces and scatters within a machine, sums between machines and gathers within a
    machine. `tree` is two binary trees through the machines, each for half of the bytes (Sanders, Speck and Träff 2009), as NCCL has them.
    """
    if workers == 1:
        return 0.0
    if algorithm == "ring" or network.machines(workers) == 1:
        return 2 * reduce_scatter_seconds(size, workers, network)
    machines, per_machine = network.machines(workers), min(network.workers_per_machine, workers)
    within = 2 * (per_machine - 1) * network.within.latency_seconds
    within += 2 * (per_machine - 1) / per_machine * size / network.within.bytes_per_second
    latency, rate = network.between.latency_seconds, network.machine_ring_rate(workers)
    if algorithm == "tree":
        return within + 2 * ceil(log2(machines)) * latency + 2 * size / rate
    return within + 2 * (machines - 1) * latency + 2 * (machines - 1) / machines * size / rate


def reduce_scatter_seconds(size: float, workers: int, network: Network) -> float:
    """Seconds in a ring, of `size` bytes before it; of an all-gather too, of `size` bytes after it."""
    if workers == 1:
        return 0.0
    return (workers - 1) * (hop_latency(workers, network) + size / workers / network.ring_rate(workers))


def hop_latency(workers: int, network: Network) -> float:
    """Mean latency of the hops of a ring."""
    machines = network.machines(workers)
    if machines == 1:
        return network.within.latency_seconds
    share_between = machines / workers
    return share_between * network.between.latency_seconds + (1 - share_between) * network.within.latency_seconds


def all_to_all_seconds(sent_bytes: float, workers: int, network: Network) -> float:
    """Seconds in which every worker has sent each other one an equal part of `sent_bytes`, message after message."""
    if workers == 1:
        return 0.0
    return (workers - 1) * hop_latency(workers, network) + sent_bytes / network.scatter_rate(workers)
