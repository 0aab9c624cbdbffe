"""Measures where the time of a step goes, by phase, without waiting for anything.

A worker is in one phase at a time, and `enter` begins the next one. On a CPU that reads the time. On a GPU, whose kernels run
later, it records a CUDA event in the phases that compute; events are read when the loop has waited for the device anyway.

The times are points of the curves: the mean over workers, the worst, and which worker that is. Workers' sums meet at some points only, at
the same steps on all workers, so that meeting costs next to nothing.
"""

import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, takewhile
from typing import Any

import torch
from torch import Tensor

from pipelines.runtime.compat.torch import after_backward
from pipelines.train.workers import all_gather_object

DATA, FORWARD, BACKWARD, EXCHANGE, OPTIMIZER, CHECKPOINT = "data", "forward", "backward", "exchange", "optimizer", "checkpoint"
PHASES = (DATA, FORWARD, BACKWARD, EXCHANGE, OPTIMIZER, CHECKPOINT)
OTHER = "other"
"""Starting, evaluating, logging: all that belongs to no step."""


GPU_STEPS_PER_MEASUREMENT = 4
"""On a GPU, one of so many steps has events and stands for all of them: to record one takes about as long as to launch a kernel."""

Hook = Callable[[Any, Any], Any]
"""A communication hook of DistributedDataParallel: called with its state and a bucket of gradients, it returns a future."""
EVERY_SECONDS = 2.0
"""Between two meetings, about: one takes some tenths of a millisecond."""


@dataclass(frozen=True)
class Totals:
    """Steps and seconds of a clock since it began."""

    steps: int
    seconds: tuple[float, ...]
    """By phase, in the order of PHASES."""

    def since(self, earlier: "Totals") -> "Totals":
        return Totals(self.steps - earlier.steps, tuple(now - then for now, then in zip(self.seconds, earlier.seconds, strict=True)))


class StepClock:
    """The clock of one worker; its strategy and its loop call `enter`. Times are host seconds."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._seconds = dict.fromkeys((*PHASES, OTHER), 0.0)
        self._steps = 0
        self.phase, self.since = OTHER, now()
        """The current phase, and when it began."""
        self.observe: Callable[[str], None] | None = None
        """Called at the end of every phase, with its name."""

    def start_step(self) -> None:
        """Begin a step, with its forward pass."""
        self._steps += 1
        self.enter(FORWARD)

    def enter(self, phase: str) -> None:
        """End the current phase, and begin this one."""
        now = self._now()
        self._seconds[self.phase] += now - self.since
        if self.observe:
            self.observe(self.phase)
        self.phase, self.since = phase, now

    def read(self) -> None:
        """Take in the events that the device has reached."""

    def totals(self) -> Totals:
        """Totals without the current phase. May be called in any thread."""
        return Totals(self._steps, tuple(self._seconds[phase] for phase in PHASES))

    def phase_seconds(self) -> float:
        """Seconds of the current phase so far."""
        return self._now() - self.since

    def time_hook(self, hook: Hook) -> Hook:
        """Wrap a hook so that its time counts as exchange: gradients that arrive in it are computed."""

        def run_hook(state: Any, bucket: Any) -> Any:
            self.enter(EXCHANGE)
            future = hook(state, bucket)
            self.enter(BACKWARD)
            return future

        # torch checks the annotations of a hook.
        run_hook.__annotations__ = dict(hook.__annotations__)
        return run_hook

    def exchange_after_backward(self, loss: Tensor) -> None:
        """Count as exchange the time that the backward pass from `loss` waits after its last gradient."""
        after_backward(loss, partial(self.enter, EXCHANGE))


class GpuStepClock(StepClock):
    """Forward, backward, exchange and optimizer are seconds of the device's current stream, by events in some steps."""

    def __init__(self, now: Callable[[], float] = time.perf_counter, event: Callable[[], Any] | None = None) -> None:
        """`event` makes an event that measures time."""
        super().__init__(now)
        self._event = event or partial(torch.cuda.Event, enable_timing=True)
        self._device_seconds = dict.fromkeys((FORWARD, BACKWARD, EXCHANGE, OPTIMIZER), 0.0)
        self._marks: list[tuple[str, Any]] = []
        """Phases of measured steps with the event that begins each, in order; OTHER ends a step."""
        self._spare_events: list[Any] = []
        self._measures = False
        self._last_reading = super().totals()

    def start_step(self) -> None:
        self._measures = self._steps % GPU_STEPS_PER_MEASUREMENT == 0
        super().start_step()

    def enter(self, phase: str) -> None:
        super().enter(phase)
        if self._measures:
            event = self._spare_events.pop() if self._spare_events else self._event()
            event.record()
            self._measures = phase in self._device_seconds
            self._marks.append((phase if self._measures else OTHER, event))

    def read(self) -> None:
        # A phase that the device has not finished is read the next time. The last mark that it has reached begins one.
        past = list(takewhile(lambda mark: mark[1].query(), self._marks))
        for (phase, begin), (_, end) in pairwise(past):
            if phase != OTHER:
                self._device_seconds[phase] += GPU_STEPS_PER_MEASUREMENT * begin.elapsed_time(end) / 1_000
        self._spare_events += [event for _, event in past[:-1]]
        self._marks = self._marks[max(0, len(past) - 1) :]
        host_totals = super().totals()
        seconds = [self._device_seconds.get(phase, host) for phase, host in zip(PHASES, host_totals.seconds, strict=True)]
        self._last_reading = Totals(host_totals.steps, tuple(seconds))

    def totals(self) -> Totals:
        """Totals of the last reading."""
        return self._last_reading


def create_step_clock(device: torch.device) -> StepClock:
    return GpuStepClock() if device.type == "cuda" else StepClock()


class PhaseTimes:
    """Gathers what the workers' clocks have counted since the last time."""

    def __init__(self, clock: StepClock, device: torch.device) -> None:
        self._clock, self._device = clock, device
        self._totals, self._met_at = clock.totals(), time.monotonic()
        self._step = self._next = 0

    def begin(self, step: int) -> None:
        """The run resumes after step `step`."""
        self._step, self._met_at = step, time.monotonic()

    def metrics(self, step: int, is_last: bool) -> dict[str, float]:
        """The metrics at a point after step `step`; empty if no meeting is due. Collective."""
        if step < self._next and not is_last:
            return {}
        totals, now = self._clock.totals(), time.monotonic()
        recent, seconds_per_step = totals.since(self._totals), (now - self._met_at) / max(1, step - self._step)
        totals_by_worker, step_seconds, peaks = zip(*all_gather_object((recent, seconds_per_step, peak_bytes(self._device))), strict=True)
        self._totals, self._met_at, self._step = totals, now, step
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
