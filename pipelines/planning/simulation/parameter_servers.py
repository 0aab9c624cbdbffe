"""Strategy `parameter_server`: workers pull parameters from servers and push gradients to them.

Every server has an equal part, and a worker asks all of them at once. So the servers count as one, whose link is as fast as all of theirs
together and carries one message at a time in each direction. In mode `sync` messages arrive as arrays; else every one is an event.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Literal

import numpy as np

from pipelines.errors import ConfigError
from pipelines.planning.simulation.links import IDEAL_LINK, NetworkLink
from pipelines.planning.simulation.outcome import Outcome, run_steps, split_by_cause
from pipelines.planning.simulation.random_numbers import STEP_SPEED, normals
from pipelines.planning.simulation.stragglers import worker_factors
from pipelines.planning.simulation.workload import Cluster, Workload


@dataclass(frozen=True)
class SimulatedServers:
    """A workload is one shard's microbatch; there are as many shards as workers."""

    servers: int
    mode: Literal["sync", "async", "bounded"] = "sync"
    staleness: int = 0
    """For `bounded`: steps by which a microbatch may be ahead of the slowest shard."""
    server: NetworkLink = IDEAL_LINK
    """A server's network interface."""

    def __post_init__(self) -> None:
        if self.servers < 1 or self.staleness < 0:
            raise ConfigError(f"{self.servers} servers with staleness {self.staleness}: there is one at least; set servers to 1 or more")

    def simulate(self, workload: Workload, cluster: Cluster, steps: int, seed: int) -> Outcome:
        if self.mode != "sync":
            return _Asynchronous(self, workload, cluster, steps, seed).run()
        servers = self.link(workload)

        def step(factors: np.ndarray) -> tuple[float, Mapping[str, float]]:
            workers = len(factors)
            pulled = servers.seconds * np.arange(1, workers + 1)
            computing = factors * (workload.forward_seconds + workload.backward_seconds)
            arrivals = np.sort(servers.at_worker(pulled, workload, cluster) + computing)
            ends = serve_in_order(servers.at_worker(arrivals, workload, cluster), servers.seconds)
            end = float(ends[-1]) + workload.optimizer_seconds / self.servers
            return end, split_by_cause(end, computing)

        return run_steps(step, cluster, steps, seed, cluster.workers, workload.compute_seconds)

    def link(self, workload: Workload) -> "_ServerLink":
        return _ServerLink(workload.gradient_bytes / self.servers / self.server.bytes_per_second, self.server.latency_seconds)


@dataclass(frozen=True)
class _ServerLink:
    """The servers as one."""

    seconds: float
    """In which they send or receive all parameters once."""
    latency_seconds: float

    def at_worker(self, served: np.ndarray, workload: Workload, cluster: Cluster) -> np.ndarray:
        """When messages have also passed the workers' links, which takes longer than the servers' where those are faster."""
        network = cluster.network
        per_machine = min(network.workers_per_machine, cluster.workers)
        worker_seconds = workload.gradient_bytes / (network.between.bytes_per_second / per_machine)
        return np.asarray(served + self.latency_seconds + max(worker_seconds - self.seconds, 0.0))


def serve_in_order(arrivals: np.ndarray, seconds: float) -> np.ndarray:
    """When a server is done with each of the messages, which it takes one after the other, `seconds` each. `arrivals` is sorted, shape
    (messages,), as is the answer."""
    number = np.arange(len(arrivals))
    return np.asarray(np.maximum.accumulate(arrivals - number * seconds) + (number + 1) * seconds)


class _Asynchronous:
    """Workers that take the next microbatch nobody has, in the order (step, shard)."""

    def __init__(self, settings: SimulatedServers, workload: Workload, cluster: Cluster, steps: int, seed: int) -> None:
        self._settings, self._workload, self._cluster, self._steps, self._seed = settings, workload, cluster, steps, seed
        self._servers = settings.link(workload)
        self._factors = worker_factors(cluster.stragglers, cluster.workers, seed) * max(cluster.workers_per_core, 1.0)
        self._missing = [cluster.workers] * steps
        """Updates of each step that are not applied."""
        self._complete, self._leased, self._applied = 0, 0, 0
        self._events: list[tuple[float, int, str, int, int]] = []
        self._blocked: list[tuple[int, float]] = []
        self._receiving, self._sending = 0.0, 0.0
        """When the servers' link is free, by direction."""
        self._since = np.zeros(cluster.workers)
        self._seconds = {"compute": 0.0, "communication": 0.0, "stragglers": 0.0}
        self._staleness = 0

    def run(self) -> Outcome:
        """Until all microbatches of all steps are applied. Workers that find none left wait for the others."""
        for worker in range(self._cluster.workers):
            self._lease(worker, 0.0)
        end = 0.0
        while self._events:
            now, worker, kind, microbatch, version = heappop(self._events)
            if kind == "pulled":
                self._compute(worker, now, microbatch)
            elif kind == "computed":
                self._receiving = max(self._receiving, now) + self._servers.seconds
                self._schedule(self._at_worker(self._receiving), worker, "pushed", microbatch, version)
            else:
                end = now
                self._apply(worker, now, microbatch, version)
        workers, updates = self._cluster.workers, self._steps * self._cluster.workers
        self._seconds["stragglers"] += float((end - self._since).sum())
        by_cause = {cause: float(seconds) / workers for cause, seconds in self._seconds.items()}
        details = {"staleness_updates": self._staleness / updates}
        return Outcome(workers, self._steps, end, {"bubble": 0.0, **by_cause}, updates, self._workload.compute_seconds, details)

    def _lease(self, worker: int, now: float) -> None:
        workers = self._cluster.workers
        if self._leased == self._steps * workers:
            return
        if self._settings.mode == "bounded" and self._leased // workers > self._complete + self._settings.staleness:
            self._blocked.append((worker, now))
            return
        self._sending = max(self._sending, now) + self._servers.seconds
        self._seconds["stragglers"] += now - self._since[worker]
        self._since[worker] = now
        self._schedule(self._at_worker(self._sending), worker, "pulled", self._leased, 0)
        self._leased += 1

    def _compute(self, worker: int, now: float, microbatch: int) -> None:
        workload, sigma = self._workload, self._cluster.stragglers.step_sigma
        noise = float(np.exp(sigma * normals(1, self._seed, STEP_SPEED, microbatch)[0])) if sigma else 1.0
        seconds = self._factors[worker] * noise * (workload.forward_seconds + workload.backward_seconds)
        self._seconds["communication"] += now - self._since[worker]
        self._seconds["compute"] += seconds
        self._since[worker] = now + seconds
        self._schedule(now + seconds, worker, "computed", microbatch, self._applied)

    def _apply(self, worker: int, now: float, microbatch: int, version: int) -> None:
        self._seconds["communication"] += now - self._since[worker]
        self._since[worker] = now
        self._staleness += self._applied - version
        self._applied += 1
        self._missing[microbatch // self._cluster.workers] -= 1
        before = self._complete
        while self._complete < self._steps and not self._missing[self._complete]:
            self._complete += 1
        if self._complete > before:
            blocked, self._blocked = self._blocked, []
            for waiting, _ in blocked:
                self._lease(waiting, now)
        self._lease(worker, now)

    def _at_worker(self, served: float) -> float:
        return float(self._servers.at_worker(np.asarray(served), self._workload, self._cluster))

    def _schedule(self, at: float, worker: int, kind: str, microbatch: int, version: int) -> None:
        heappush(self._events, (at, worker, kind, microbatch, version))
