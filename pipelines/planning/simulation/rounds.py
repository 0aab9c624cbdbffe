"""Strategies `local_sgd` and `federated`: workers compute for a round, and then the mean of their changes is sent."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pipelines.errors import ConfigError
from pipelines.planning.simulation.links import Algorithm, all_reduce_seconds
from pipelines.planning.simulation.outcome import Outcome, run_steps, split_by_cause
from pipelines.planning.simulation.random_numbers import CLIENT_ROWS, normals
from pipelines.planning.simulation.stragglers import step_factors, worker_factors
from pipelines.planning.simulation.workload import Cluster, Workload

NUMBERS_BYTES = 100.0
"""Losses, counts and flags that replicas exchange in every step."""


@dataclass(frozen=True)
class SimulatedLocalSgd:
    """Replicas, one a worker, that take `inner_steps` steps of their worker_speeds before each outer step."""

    inner_steps: int
    bytes_share: float = 1.0
    """Of the parameters' bytes, that an outer step sends: 0.25 with int8."""
    exchanges_numbers: bool = True
    """Whether workers wait for each other's losses in every step, as they do in Lockstep."""
    algorithm: Algorithm = "ring"

    def simulate(self, workload: Workload, cluster: Cluster, steps: int, seed: int) -> Outcome:
        """`steps` counts inner steps, and is rounded up to whole rounds."""
        if self.inner_steps < 1:
            raise ConfigError(f"inner_steps is {self.inner_steps}; a round has at least one step: set it to 1 or more")
        rounds = -(-steps // self.inner_steps)
        outer = all_reduce_seconds(workload.gradient_bytes * self.bytes_share, cluster.workers, cluster.network, self.algorithm)
        numbers = all_reduce_seconds(NUMBERS_BYTES, cluster.workers, cluster.network, "tree") if self.exchanges_numbers else 0.0
        worker_speeds = worker_factors(cluster.stragglers, cluster.workers, seed) * max(cluster.workers_per_core, 1.0)
        seconds, by_cause = 0.0, dict.fromkeys(("compute", "communication", "stragglers", "bubble"), 0.0)
        for number in range(rounds):
            inner = range(number * self.inner_steps, (number + 1) * self.inner_steps)
            factors = [worker_speeds * step_factors(cluster.stragglers, cluster.workers, seed, step) for step in inner]
            stops = factors if self.exchanges_numbers else [np.sum(factors, axis=0)]
            for index, computing in enumerate(workload.compute_seconds * np.stack(stops)):
                end = float(computing.max()) + numbers + (outer if index == len(stops) - 1 else 0.0)
                seconds += end
                for cause, cause_seconds in split_by_cause(end, computing).items():
                    by_cause[cause] += cause_seconds
        steps_taken = rounds * self.inner_steps
        return Outcome(cluster.workers, steps_taken, seconds, by_cause, cluster.workers * steps_taken, workload.compute_seconds)


@dataclass(frozen=True)
class SimulatedFederated:
    """Rounds of clients whose numbers of rows differ. Workers compute consecutive clients one after the other, and send one sum.

    A workload is one pass over the rows of the median client, and a step is a round.
    """

    per_round: int
    local_epochs: int = 1
    rows_sigma: float = 0.0
    """Standard deviation of the logarithm of a client's rows."""

    def simulate(self, workload: Workload, cluster: Cluster, steps: int, seed: int) -> Outcome:
        workers = cluster.workers
        if not workers <= self.per_round:
            raise ConfigError(f"{workers} workers for {self.per_round} clients in a round: each has one at least; raise per_round")
        mean_sum = all_reduce_seconds(workload.gradient_bytes, workers, cluster.network)
        edges = np.arange(workers) * self.per_round // workers
        numbers = iter(range(steps))
        rows_of_round = [np.exp(self.rows_sigma * normals(self.per_round, seed, CLIENT_ROWS, number)) for number in range(steps)]

        def step(factors: np.ndarray) -> tuple[float, Mapping[str, float]]:
            passes = np.add.reduceat(rows_of_round[next(numbers)], edges) * self.local_epochs
            computing = factors * passes * workload.compute_seconds
            end = float(computing.max()) + mean_sum
            return end, split_by_cause(end, computing)

        passes = float(np.mean([rows.sum() for rows in rows_of_round])) * self.local_epochs
        return run_steps(step, cluster, steps, seed, passes, workload.compute_seconds)
