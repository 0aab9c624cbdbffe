"""Measures where the time of a step goes, by phase, without waiting for anything.

A worker is in one phase at a time, and `enter` begins the next one. On a CPU that reads the time. On a GPU, whose kernels run
later, it records a CUDA event in the phases that compute; events are read when the loop has waited for the device anyway.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, takewhile
from typing import Any

import torch
from torch import Tensor

from pipelines.runtime.compat.torch import after_backward
from pipelines.train.phases import BACKWARD, EXCHANGE, FORWARD, OPTIMIZER, OTHER, PHASES

GPU_STEPS_PER_MEASUREMENT = 4
"""On a GPU, one of so many steps has events and stands for all of them: to record one takes about as long as to launch a kernel."""

Hook = Callable[[Any, Any], Any]
"""A communication hook of DistributedDataParallel: called with its state and a bucket of gradients, it returns a future."""


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
