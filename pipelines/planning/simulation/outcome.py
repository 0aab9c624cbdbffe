"""The outcome of a simulation: seconds by cause, steps and efficiency."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from pipelines.planning.simulation.workload import Cluster, Workload

STEP_CAUSES = ("compute", "communication", "stragglers", "bubble")
"""`communication` is what computing does not hide; `stragglers` is waiting for slower workers, `bubble` for other stages."""


@dataclass(frozen=True)
class Outcome:
    """Steps of all workers together."""

    workers: int
    steps: float
    seconds: float
    """From the first step's start to the last one's end."""
    by_cause: Mapping[str, float]
    """The same seconds, as the mean over workers, by STEP_CAUSES."""
    passes: float
    """Passes over one worker's rows, of the whole model, that count."""
    pass_seconds: float
    """Of such a pass with its update on one worker that never waits."""
    details: Mapping[str, float] = field(default_factory=dict)

    @property
    def step_seconds(self) -> float:
        return self.seconds / self.steps

    @property
    def efficiency(self) -> float:
        """Passes per second and worker, as a share of those of one worker that never waits."""
        return self.passes * self.pass_seconds / (self.workers * self.seconds)


class SimulatedStrategy(Protocol):
    """How workers share steps."""

    def simulate(self, workload: Workload, cluster: Cluster, steps: int, seed: int) -> Outcome: ...


StepFunction = Callable[[np.ndarray], tuple[float, Mapping[str, float]]]
"""Of the workers' factors: a step's seconds, and the mean over workers by cause."""


def run_steps(step: StepFunction, cluster: Cluster, steps: int, seed: int, passes: float, pass_seconds: float) -> Outcome:
    """Synchronous steps one after the other, `passes` in each."""
    seconds, by_cause = 0.0, dict.fromkeys(STEP_CAUSES, 0.0)
    for factors in cluster.factors(seed, steps):
        step_seconds, causes = step(factors)
        seconds += step_seconds
        for cause, cause_seconds in causes.items():
            by_cause[cause] += cause_seconds
    return Outcome(cluster.workers, steps, seconds, by_cause, passes * steps, pass_seconds)


def split_by_cause(step_seconds: float, computing: np.ndarray) -> dict[str, float]:
    """A synchronous step's seconds by cause. `computing` has each worker's seconds, shape (workers,). A worker waits for the slowest one;
    what the step takes beyond the slowest one's computing is communication."""
    slowest = float(computing.max())
    mean = float(computing.mean())
    return {"compute": mean, "stragglers": slowest - mean, "communication": step_seconds - slowest}
