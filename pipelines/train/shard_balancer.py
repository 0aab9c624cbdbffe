"""Deals shards to workers in proportion to their speed. Neither rows nor the order of sums depend on which worker computes a shard.

The workers' times are compared every few seconds, at the same steps on all workers. Shards are dealt anew if that makes a step
shorter by more than noise would. With `leave_out`, the run stops to go on without the machine of a worker that stays slow.
"""

import heapq
import logging
import time
from collections.abc import Sequence
from statistics import median_high

from pipelines.config.train.train import Train
from pipelines.train.run_context import Hooks
from pipelines.train.step_clock import BACKWARD, FORWARD, OPTIMIZER, PHASES
from pipelines.train.strategy import Strategy
from pipelines.train.workers import all_gather_object

log = logging.getLogger(__name__)

FEWEST_STEPS, EVERY_SECONDS = 8, 5.0
"""Steps and seconds between two comparisons, at least."""
LEAST_GAIN = 0.05
"""Share of a step's computation that a new deal must save."""
SLOW_SHARE = 1 / 3
"""A worker below this share of the median speed is slow."""


def shard_counts(seconds_per_shard: Sequence[float], fixed_seconds: Sequence[float], shards: int) -> tuple[int, ...]:
    """The number of shards of each worker, at least one, with which the slowest worker ends its step as early as possible. A step takes
    `fixed_seconds` of a worker however many shards it computes.

    Greedy, and optimal: every shard goes to the worker that would end it first; ties go to the lower rank.
    """
    counts = [1] * len(seconds_per_shard)
    ends = [(fixed + 2 * seconds, rank) for rank, (fixed, seconds) in enumerate(zip(fixed_seconds, seconds_per_shard, strict=True))]
    heapq.heapify(ends)
    for _ in range(shards - len(counts)):
        _, rank = ends[0]
        counts[rank] += 1
        heapq.heapreplace(ends, (fixed_seconds[rank] + (counts[rank] + 1) * seconds_per_shard[rank], rank))
    return tuple(counts)


class ShardBalancer:
    """Compares the workers' speeds, and deals the shards anew when that is worth it."""

    left_out: tuple[str, ...] = ()
    """Machines of workers that stayed slow, once there are some: the run is to stop, and go on without them."""

    def __init__(self, strategy: Strategy, settings: Train, hooks: Hooks) -> None:
        self._strategy, self._shards, self._hooks = strategy, settings.shards, hooks
        self._totals = strategy.clock.totals()
        self._next, self._compared, self._compared_at = 0, 0, time.monotonic()
        self._slow: set[int] = set()
        self._indispensable: set[str] = set()
        """Machines of slow workers that the group cannot do without."""
        self._machines = all_gather_object(strategy.mesh.context.machine) if settings.balance.leave_out else []
        self._min_workers = settings.min_workers

    def deal(self, step: int) -> bool:
        """After step `step`: deal the shards anew if that is due and worth it. Returns whether shards were dealt. Collective."""
        if not self._next:  # a resumed run has not taken the steps before
            self._next, self._compared, self._compared_at = step + FEWEST_STEPS, step, time.monotonic()
        if step < self._next:
            return False
        mesh = self._strategy.mesh
        elapsed = (time.monotonic() - self._compared_at) / max(step - self._compared, 1)
        # Of this worker's shards, 0 if unknown; and of its optimizer, which does not depend on the number of shards: per step since the
        # last comparison, without waiting for other workers.
        totals = self._strategy.clock.totals()
        recent, self._totals = totals.since(self._totals), totals
        by_phase, steps = dict(zip(PHASES, recent.seconds, strict=True)), max(1, recent.steps)
        shards_and_fixed_seconds = (by_phase[FORWARD] + by_phase[BACKWARD]) / steps, by_phase[OPTIMIZER] / steps
        seconds, fixed_seconds, elapsed_by_worker = zip(*all_gather_object((*shards_and_fixed_seconds, elapsed)), strict=True)
        counts = [len(block) for block in mesh.shards_by_replica(self._shards)]
        self._next = step + max(FEWEST_STEPS, int(EVERY_SECONDS / max(elapsed_by_worker)))
        self._compared, self._compared_at = step, time.monotonic()
        if not all(seconds):
            return False
        self._check_slow_workers([count / computing for count, computing in zip(counts, seconds, strict=True)])
        if self.left_out:
            return False
        per_shard = [computing / count for count, computing in zip(counts, seconds, strict=True)]
        new_counts = shard_counts(per_shard, fixed_seconds, self._shards)
        if _slowest_seconds(new_counts, per_shard, fixed_seconds) > (1 - LEAST_GAIN) * _slowest_seconds(counts, per_shard, fixed_seconds):
            return False
        self._strategy.assign_shards(new_counts)
        if mesh.context.rank == 0:
            log.info("step %d: workers own %s shards, in proportion to their speed (%s before)", step, _join(new_counts), _join(counts))
            self._hooks.log(step, {f"balance/shards_of_worker_{rank}": float(count) for rank, count in enumerate(new_counts)})
        return True

    def _check_slow_workers(self, speeds: list[float]) -> None:
        """Warn, on rank 0 and once for each, of workers that are slower than a third of the median. Leave out the machines of those that
        stay slow, with all their workers, unless too few would remain: then warn once."""
        median_speed = median_high(speeds)  # of two workers, the speed of the faster one
        slow = {rank for rank, speed in enumerate(speeds) if speed < SLOW_SHARE * median_speed}
        is_first_rank = self._strategy.mesh.context.rank == 0
        for rank in sorted(slow - self._slow) if is_first_rank else ():
            log.warning(
                "worker %d computes %.3g shards a second, and the median one %.3g; leave out its machine, as train.balance.leave_out does",
                *(rank, speeds[rank], median_speed),
            )
        still_slow, self._slow = slow & self._slow, slow
        if not self._machines or not still_slow:
            return
        machines = {self._machines[rank] for rank in still_slow} - {""}
        remaining = sum(machine not in machines for machine in self._machines)
        if remaining >= self._min_workers:
            self.left_out = tuple(sorted(machines))
        elif is_first_rank and machines - self._indispensable:
            log.warning(
                "no machine is left out: %d workers would remain, and train.workers allows no fewer than %d; lower it, or add machines",
                *(remaining, self._min_workers),
            )
        self._indispensable |= machines


def _slowest_seconds(counts: Sequence[int], seconds_per_shard: Sequence[float], fixed_seconds: Sequence[float]) -> float:
    return max(fixed + count * seconds for count, seconds, fixed in zip(counts, seconds_per_shard, fixed_seconds, strict=True))


def _join(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts))
