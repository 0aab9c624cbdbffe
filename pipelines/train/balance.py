"""Deals shards to workers in proportion to their speed. Which worker computes a shard changes neither its rows nor the order of sums.

The workers' times are compared every few seconds, at the same steps on all workers. Shards are dealt anew if that makes a step
shorter by more than noise would. With `leave_out`, the run stops to go on without the machine of a worker that stays slow.
"""

import heapq
import logging
import time
from collections.abc import Sequence
from statistics import median_high

from pipelines.config.train import Train
from pipelines.train.hooks import Hooks
from pipelines.train.reduce.agreement import gathered
from pipelines.train.step_clock import BACKWARD, FORWARD, OPTIMIZER, PHASES
from pipelines.train.strategy import Strategy

log = logging.getLogger(__name__)

FEWEST_STEPS, EVERY_SECONDS = 8, 5.0
"""Steps and seconds between two comparisons, at least."""
LEAST_GAIN = 0.05
"""Share of a step's computation that a new deal must save."""
SLOW_SHARE = 1 / 3
"""A worker is named as slow below this share of the median speed."""


def shard_counts(seconds_per_shard: Sequence[float], fixed_seconds: Sequence[float], shards: int) -> tuple[int, ...]:
    """How many shards each worker computes, at least one, so that the slowest one is done as early as possible. A worker's step takes
    `fixed_seconds` however many it computes.

    Greedy, and optimal: every shard goes to the worker that would be done with it first; ties go to the lower rank.
    """
    counts = [1] * len(seconds_per_shard)
    done = [(fixed + 2 * seconds, rank) for rank, (fixed, seconds) in enumerate(zip(fixed_seconds, seconds_per_shard, strict=True))]
    heapq.heapify(done)
    for _ in range(shards - len(counts)):
        _, rank = done[0]
        counts[rank] += 1
        heapq.heapreplace(done, (fixed_seconds[rank] + (counts[rank] + 1) * seconds_per_shard[rank], rank))
    return tuple(counts)


class Balance:
    """Compares the workers' speeds, and deals the shards anew when that is worth it."""

    left_out: tuple[str, ...] = ()
    """Machines of workers that stayed slow, once there are some: the run is to stop, and go on without them."""

    def __init__(self, strategy: Strategy, settings: Train, hooks: Hooks) -> None:
        self._strategy, self._shards, self._hooks = strategy, settings.shards, hooks
        self._counted = strategy.clock.totals()
        self._next, self._compared, self._compared_at = 0, 0, time.monotonic()
        self._slow: set[int] = set()
        self._kept: set[str] = set()
        """Machines of slow workers that the group cannot do without."""
        self._machines = gathered(strategy.mesh.context.machine) if settings.balance.leave_out else []
        self._min_workers = settings.min_workers

    def deal(self, step: int) -> bool:
        """After step `step`: deal the shards anew if that is due and worth it. Returns whether it was. Collective."""
        if not self._next:  # a resumed run has not taken the steps before
            self._next, self._compared, self._compared_at = step + FEWEST_STEPS, step, time.monotonic()
        if step < self._next:
            return False
        mesh = self._strategy.mesh
        elapsed = (time.monotonic() - self._compared_at) / max(step - self._compared, 1)
        seconds, fixed, lasted = zip(*gathered((*self._step_seconds(), elapsed)), strict=True)
        counts = [len(owned) for owned in mesh.shards_by_replica(self._shards)]
        self._next = step + max(FEWEST_STEPS, int(EVERY_SECONDS / max(lasted)))
        self._compared, self._compared_at = step, time.monotonic()
        if not all(seconds):
            return False
        self._name_slow([count / each for count, each in zip(counts, seconds, strict=True)])
        if self.left_out:
            return False
        per_shard = [each / count for count, each in zip(counts, seconds, strict=True)]
        wanted = shard_counts(per_shard, fixed, self._shards)
        if _longest(wanted, per_shard, fixed) > (1 - LEAST_GAIN) * _longest(counts, per_shard, fixed):
            return False
        self._strategy.own(wanted)
        if mesh.context.rank == 0:
            log.info("step %d: workers own %s shards, in proportion to their speed (%s before)", step, _listed(wanted), _listed(counts))
            self._hooks.log(step, {f"balance/shards_of_worker_{rank}": float(count) for rank, count in enumerate(wanted)})
        return True

    def _step_seconds(self) -> tuple[float, float]:
        """Seconds per step since the last comparison, without waiting for others: those in which this worker computed its shards, 0 if
        none are known, and those of its optimizer, which do not depend on the number of shards."""
        totals = self._strategy.clock.totals()
        counted, self._counted = totals.since(self._counted), totals
        by_phase = dict(zip(PHASES, counted.seconds, strict=True))
        steps = max(1, counted.steps)
        return (by_phase[FORWARD] + by_phase[BACKWARD]) / steps, by_phase[OPTIMIZER] / steps

    def _name_slow(self, speeds: list[float]) -> None:
        """Warn, on rank 0 and once for each, of workers that are slower than a third of the median. Leave out those that stay so."""
        usual = median_high(speeds)  # of two workers, the speed of the faster one
        slow = {rank for rank, speed in enumerate(speeds) if speed < SLOW_SHARE * usual}
        for rank in sorted(slow - self._slow) if self._strategy.mesh.context.rank == 0 else ():
            log.warning(
                "worker %d computes %.3g shards a second, and the median one %.3g; leave out its machine, as train.balance.leave_out does",
                *(rank, speeds[rank], usual),
            )
        if self._machines and (staying := slow & self._slow):
            self._leave_out({self._machines[rank] for rank in staying} - {""})
        self._slow = slow

    def _leave_out(self, machines: set[str]) -> None:
        """Leave out all workers of the machines, unless too few would remain, which is said once."""
        remaining = sum(machine not in machines for machine in self._machines)
        if remaining >= self._min_workers:
            self.left_out = tuple(sorted(machines))
        elif self._strategy.mesh.context.rank == 0 and machines - self._kept:
            log.warning(
                "no machine is left out: %d workers would remain, and train.workers allows no fewer than %d; lower it, or add machines",
                *(remaining, self._min_workers),
            )
        self._kept |= machines


def _longest(counts: Sequence[int], seconds_per_shard: Sequence[float], fixed_seconds: Sequence[float]) -> float:
    """Seconds of the slowest worker."""
    return max(fixed + count * each for count, each, fixed in zip(counts, seconds_per_shard, fixed_seconds, strict=True))


def _listed(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts))
