"""Waiting times of a worker, and the staleness of its parameters: metrics of a point of the curves."""

from dataclasses import dataclass, field
from statistics import fmean

from pipelines.strategies.parameter_server.messages import StepSums


@dataclass
class Waits:
    """Sums since the last point."""

    microbatches: int = 0
    """Microbatches of this worker."""
    pull_seconds: float = 0.0
    push_seconds: float = 0.0
    steps: list[StepSums] = field(default_factory=list)
    """At least one, when the metrics are read."""

    def metrics(self) -> dict[str, float]:
        """Means over the window, and the greatest staleness, named as in MLflow."""
        metrics = {
            "servers/staleness": fmean(sums.staleness for sums in self.steps),
            "servers/most_stale": max(sums.most_stale for sums in self.steps),
        }
        if self.microbatches:
            metrics["servers/pull_seconds"] = self.pull_seconds / self.microbatches
            metrics["servers/push_seconds"] = self.push_seconds / self.microbatches
        return metrics
