"""Where the time of steps goes, as points of the curves: the mean over workers, the worst, and which worker that is.

Workers' sums meet at some points of the curves only, at the same steps on all workers, so that meeting costs next to nothing.
"""

import resource
import sys
import time
from collections.abc import Sequence

import torch

from pipelines.train.phases import PHASES
from pipelines.train.reduce.agreement import all_gather_object
from pipelines.train.step_clock import StepClock, Totals

EVERY_SECONDS = 2.0
"""Between two meetings, about: one takes some tenths of a millisecond."""


class PhaseTimes:
    """Gathers what the workers' clocks have counted since the last time."""

    def __init__(self, clock: StepClock, device: torch.device) -> None:
        self._clock, self._device = clock, device
        self._totals, self._at = clock.totals(), time.monotonic()
        self._step = self._next = 0

    def begin(self, step: int) -> None:
        """The run resumes after step `step`."""
        self._step, self._at = step, time.monotonic()

    def metrics(self, step: int, is_last: bool) -> dict[str, float]:
        """The metrics at a point after step `step`; empty if no meeting is due. Collective."""
        if step < self._next and not is_last:
            return {}
        totals, now = self._clock.totals(), time.monotonic()
        recent, seconds_per_step = totals.since(self._totals), (now - self._at) / max(1, step - self._step)
        totals_by_worker, step_seconds, peaks = zip(*all_gather_object((recent, seconds_per_step, peak_bytes(self._device))), strict=True)
        self._totals, self._at, self._step = totals, now, step
        self._next = step + max(1, int(EVERY_SECONDS / max(step_seconds)))
        return {**phase_metrics(totals_by_worker), **worker_metrics("memory/peak_bytes", peaks)}


def phase_metrics(totals_by_worker: Sequence[Totals]) -> dict[str, float]:
    """Seconds per step of every phase that some worker has been in; empty without steps."""
    if not all(totals.steps > 0 for totals in totals_by_worker):
        return {}
    metrics: dict[str, float] = {}
    for phase, phase_seconds in zip(PHASES, zip(*(totals.seconds for totals in totals_by_worker), strict=True), strict=True):
        if any(phase_seconds):
            per_step = [seconds / totals.steps for seconds, totals in zip(phase_seconds, totals_by_worker, strict=True)]
            metrics |= worker_metrics(f"time/{phase}_seconds", per_step)
    return metrics


def worker_metrics(name: str, values: Sequence[float]) -> dict[str, float]:
    """A metric's mean over workers and, if there are several, its largest value and the rank of the worker that has it."""
    worst = max(range(len(values)), key=values.__getitem__)
    mean = {name: sum(values) / len(values)}
    return mean if len(values) == 1 else {**mean, f"{name}_worst": values[worst], f"{name}_worst_rank": float(worst)}


def peak_bytes(device: torch.device) -> float:
    """The most memory that this process has had: on a GPU, of tensors there; else, resident memory."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024))
