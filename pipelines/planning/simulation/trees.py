"""Strategy `boosting`: workers sum histograms of their rows for every decision, as LightGBM's data-parallel learner does (Ke et al. 2017).

Every worker reduces an equal part of the inputs' histograms and looks for the best decision in it; then all choose the best one. So the
bytes of a decision do not depend on the rows, and the learner stops paying where a worker has few of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pipelines.planning.simulation.links import all_reduce_seconds, reduce_scatter_seconds
from pipelines.planning.simulation.outcome import Outcome, run_steps, split_by_cause
from pipelines.planning.simulation.workload import Cluster, Workload

ENTRY_BYTES = 16.0
"""A histogram's entry: sums of gradients and of Hessians, each a float64."""
DECISION_BYTES = 200.0
"""What a worker says of its best decision; counted as the tree's all-reduce."""


@dataclass(frozen=True)
class SimulatedBoosting:
    """A step is a tree, and a workload one tree over a worker's rows. Decisions take equal parts of its seconds."""

    leaves: int
    inputs: int
    bins: int = 255

    def simulate(self, workload: Workload, cluster: Cluster, steps: int, seed: int) -> Outcome:
        decisions = self.leaves - 1
        histograms = self.inputs * self.bins * ENTRY_BYTES
        message = reduce_scatter_seconds(histograms, cluster.workers, cluster.network)
        message += all_reduce_seconds(DECISION_BYTES, cluster.workers, cluster.network, "tree")

        def step(factors: np.ndarray) -> tuple[float, Mapping[str, float]]:
            computing = factors * workload.compute_seconds
            end = float(computing.max()) + decisions * message
            return end, split_by_cause(end, computing)

        return run_steps(step, cluster, steps, seed, cluster.workers, workload.compute_seconds)
