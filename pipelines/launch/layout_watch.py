"""Compares the steps of a run with what a plan expects of them; if another layout would save more than a restart takes, says so, and with
`train.parallel.replan` makes the run go on in it."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from pipelines.config import Config
from pipelines.config.messages.words import show_count
from pipelines.errors import TrainingError
from pipelines.planning.candidates import PlanCandidate
from pipelines.planning.replanning import LayoutChange, MeasuredStep, find_change
from pipelines.tracking.training import BETTER_LAYOUT, MEASURED_SECONDS, PLANNED_LAYOUT, PLANNED_SECONDS
from pipelines.train.checkpoint.run_directory import PROGRESS, STOP, RunDirectory
from pipelines.train.step_clock import DATA, EXCHANGE

log = logging.getLogger(__name__)

READINGS = 3
"""Of a group's steps, about two seconds apart, before they are compared; the one before, of its first steps, does not count."""
_EXCHANGE, _DATA = f"time/{EXCHANGE}_seconds", f"time/{DATA}_seconds"


@dataclass(frozen=True)
class LayoutPlan:
    """Layouts in which the model is the same, and the one to begin in."""

    candidates: Sequence[PlanCandidate]
    chosen: int
    """Position of the candidate to begin in."""
    place: Callable[[PlanCandidate], Config]
    """The config that trains in a candidate's layout."""
    replans: bool = False
    """Whether the run goes on in a layout that turns out to be better."""

    @property
    def config(self) -> Config:
        return self.place(self.candidates[self.chosen])


@dataclass
class LayoutWatch:
    """Watches the groups of workers of one run, one after the other. `say` gets lines for the user, and `record` values for the run."""

    plan: LayoutPlan
    directory: RunDirectory
    say: Callable[[str], None]
    record: Callable[[Mapping[str, str]], None]
    change: LayoutChange | None = None
    """To which the workers were asked to save and stop."""

    def __post_init__(self) -> None:
        self.position = self.plan.chosen
        self._steps: dict[int, MeasuredStep] = {}
        self._abandoned: set[int] = set()
        self._group = _Group()
        self._advised = False

    def begin_group(self) -> None:
        """Workers are about to start, in the layout at `position`."""
        self._group, self.change = _Group(), None
        expected = self.plan.candidates[self.position].step.step_seconds
        self.record({PLANNED_LAYOUT: self._describe(self.position), PLANNED_SECONDS: f"{expected:.3g}"})

    def poll(self) -> None:
        """Read the run's progress. If the store fails, it is read again later."""
        if self.change is not None or self._advised:
            return
        try:
            written = self.directory.glance(PROGRESS)
            if written is None or not self._group.add(written):
                return
            self._compare(written["steps"] - written["step"])
        except TrainingError as error:
            log.warning("%s", error)

    def go_on(self, steps: int) -> Config:
        """The config of the layout in which the next group of workers goes on, now that the run is saved after so many steps."""
        assert self.change is not None
        self._abandoned.add(self.position)
        self.position = self.change.position
        self.say(f"saved after step {steps:,}; the run goes on with {self._describe(self.position)}")
        return self.plan.place(self.plan.candidates[self.position])

    def _compare(self, steps_left: int) -> None:
        """Compare what the group has measured with the plan's other layouts. A layout that was left once, and came back, stays."""
        measured = self._steps[self.position] = self._group.step
        expected = self.plan.candidates[self.position].step.step_seconds
        self.record({MEASURED_SECONDS: f"{measured.step_seconds:.3g}"})
        change = find_change(self.plan.candidates, self._steps, self.position, steps_left, self._group.start_seconds)
        if change is None or self.position in self._abandoned:
            return
        takes = f"a step takes {measured.step_seconds:.3g} s, where the plan expects {expected:.3g}"
        gain = (
            f"{self._describe(change.position)} would take {change.step_seconds:.3g}, and save {change.saved_seconds:.0f} s of what is left"
        )
        if not self.plan.replans:
            self._advised = True
            self.record({BETTER_LAYOUT: self._describe(change.position)})
            self.say(f"{takes}; {gain}: interrupt, and run the same command with train.parallel.replan, which changes to it")
            return
        self.say(f"{takes}; {gain}: the workers save first")
        self.directory.put(STOP, b"")
        self.change = change

    def _describe(self, position: int) -> str:
        layout = self.plan.candidates[position].layout
        return f"{show_count(layout.workers, 'worker')} ({layout.describe()})"


@dataclass
class _Group:
    """Readings of the steps of a group of workers, from its start on."""

    started: float = field(default_factory=time.monotonic)
    start_seconds: float = 0.0
    """Until their first step."""
    _last: dict[str, Any] = field(default_factory=dict)
    _readings: list[MeasuredStep] = field(default_factory=list)

    def add(self, written: Mapping[str, Any]) -> bool:
        """Take in what was written. Returns whether a further reading of the steps' phases has come, and there are enough of them."""
        if written["first_step"] is None:
            return False
        self.start_seconds = self.start_seconds or time.monotonic() - self.started
        metrics = written["metrics"]
        phases = {name: metrics[name] for name in metrics if name.startswith("time/")}
        if "train/step_seconds" not in metrics or not phases or phases == self._last:
            return False
        self._last = phases
        self._readings.append(MeasuredStep(metrics["train/step_seconds"], phases.get(_EXCHANGE, 0.0), phases.get(_DATA, 0.0)))
        return len(self._readings) > READINGS

    @property
    def step(self) -> MeasuredStep:
        """The medians of the readings that count."""
        readings = self._readings[1:]
        parts = ((reading.step_seconds, reading.exchange_seconds, reading.data_seconds) for reading in readings)
        return MeasuredStep(*map(median, zip(*parts, strict=True)))
