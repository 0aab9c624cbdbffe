"""Records some steps of a worker with torch's profiler: a trace, a table of the dearest operators, and memory.

Nothing of it ends a training: what fails is logged, and there is no profile.
"""

import json
import logging
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from pipelines.config.train.base import Profile
from pipelines.runtime.compat.torch import record_memory, write_memory_snapshot
from pipelines.train.step_clock import StepClock

log = logging.getLogger(__name__)

PROFILE = "profile"
"""The folder of the run's directory, and of the run's artifacts."""
DEAREST = 40
"""Number of operators in the table."""
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class PeaksByPhase:
    """`end` is called at the end of each phase."""

    def __init__(self) -> None:
        self.bytes: dict[str, int] = {}
        """By phase: the largest peak so far; empty on systems that do not count it."""
        self._reset()

    def end(self, phase: str) -> None:
        lines = []
        with suppress(OSError):
            lines = _STATUS.read_text(encoding="utf-8").splitlines()
        if peak := next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0):
            self.bytes[phase] = max(peak, self.bytes.get(phase, 0))
            self._reset()

    def _reset(self) -> None:
        with suppress(OSError):  # then every phase has the peak so far
            _CLEAR.write_text("5", encoding="utf-8")


class StepProfiler:
    """The profiler of one worker. Tell it every step; `put` takes a file's name and content."""

    def __init__(self, settings: Profile, clock: StepClock, device: torch.device, rank: int, put: Callable[[str, bytes], None]) -> None:
        self._first, self._last = settings.steps if settings.steps and rank in settings.ranks else (0, 0)
        self._memory, self._clock, self._device, self._rank, self._put = settings.memory, clock, device, rank, put
        self._profile: profile | None = None
        self._range: record_function | None = None
        self._peaks: PeaksByPhase | None = None

    def begin(self, step: int) -> None:
        """Step `step`, counted from 1, begins."""
        if not self._last:
            return
        try:
            if self._range is not None:
                self._range.__exit__(None, None, None)
                self._range = None
            if self._profile is None and self._first <= step <= self._last:
                self._start()
            if self._profile is not None and step > self._last:
                self._finish()
            if self._profile is not None:
                self._range = record_function(f"step {step}")
                self._range.__enter__()
        except Exception as error:  # of the profiler, which is no reason to lose a training
            self._give_up()
            log.warning("worker %d: no profile, since it failed: %s: %s", self._rank, type(error).__name__, error)

    def close(self) -> None:
        if self._profile is not None:
            self.begin(self._last + 1)

    def _start(self) -> None:
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._device.type == "cuda" else [])]
        if self._memory and self._device.type == "cuda":
            record_memory(True)
        elif self._memory:
            self._peaks = PeaksByPhase()
            self._clock.observe = self._peaks.end
        self._profile = profile(activities=activities)
        self._profile.start()

    def _give_up(self) -> None:
        """Stop whatever records: it takes time and memory, and reading peaks by phase resets the peak of the whole process."""
        recorded, self._profile, self._last, self._range = self._profile, None, 0, None
        self._clock.observe = None
        with suppress(Exception):  # what has failed may fail to stop
            if self._memory and self._device.type == "cuda":
                record_memory(False)
            if recorded is not None:
                recorded.stop()

    def _finish(self) -> None:
        assert self._profile is not None, "steps were recorded"
        recorded, self._profile, self._last = self._profile, None, 0
        recorded.stop()
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "trace.json.gz"
            recorded.export_chrome_trace(str(trace))
            self._put(f"rank-{self._rank}.trace.json.gz", trace.read_bytes())
            if self._memory and self._device.type == "cuda":
                snapshot = Path(folder) / "memory.pickle"
                write_memory_snapshot(str(snapshot))
                record_memory(False)
                self._put(f"rank-{self._rank}.memory.pickle", snapshot.read_bytes())
        if self._peaks is not None:
            self._clock.observe = None
            self._put(f"rank-{self._rank}.memory.json", _json({"peak_resident_bytes": self._peaks.bytes}))
        events = recorded.key_averages()
        order = "self_device_time_total" if self._device.type == "cuda" else "self_cpu_time_total"
        self._put(f"rank-{self._rank}.operators.txt", events.table(sort_by=order, row_limit=DEAREST).encode())
        self._put(f"rank-{self._rank}.operators.json", _json(operators(events, order)))


def operators(events: Any, order: str) -> list[dict[str, Any]]:
    """The operators that took longest by themselves, the dearest first, with times in microseconds."""
    dearest = sorted(events, key=lambda event: getattr(event, order), reverse=True)[:DEAREST]
    return [
        {
            "operator": event.key,
            "calls": event.count,
            "self_cpu_microseconds": event.self_cpu_time_total,
            "cpu_microseconds": event.cpu_time_total,
            "self_device_microseconds": event.self_device_time_total,
        }
        for event in dearest
    ]


def _json(values: Any) -> bytes:
    return json.dumps(values, indent=1).encode()
