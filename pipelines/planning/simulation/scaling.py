"""Scaling curves: a strategy's efficiency over the number of workers, and up to where it pays."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from pipelines.planning.simulation.outcome import Outcome, SimulatedStrategy
from pipelines.planning.simulation.workload import Cluster, Workload

StrategyFor = Callable[[int], tuple[SimulatedStrategy, Workload]]
"""The strategy and the workload of a number of workers: an `exact` run has more shards, and a fixed global batch fewer rows a worker."""


def scaling_curve(strategy_for: StrategyFor, cluster: Cluster, workers: Sequence[int], steps: int, seed: int) -> dict[int, Outcome]:
    """Outcomes by number of workers; the cluster's own number is not used."""
    outcomes = {}
    for count in workers:
        strategy, workload = strategy_for(count)
        outcomes[count] = strategy.simulate(workload, replace(cluster, workers=count), steps, seed)
    return outcomes


def pays_until(curve: dict[int, Outcome], threshold: float) -> int | None:
    """The largest number of workers up to which the efficiency is always at least `threshold`; None if it is below it at the first."""
    last = None
    for workers, outcome in sorted(curve.items()):
        if outcome.efficiency < threshold:
            break
        last = workers
    return last


def keep_rows_per_worker(workload: Workload, strategy: SimulatedStrategy) -> StrategyFor:
    """Weak scaling: every worker has the same workload, however many there are."""
    return lambda workers: (strategy, workload)
