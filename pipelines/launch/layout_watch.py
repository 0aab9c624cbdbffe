"""Compares the steps of a run with what a plan expects of them; if another layout would save more than a restart takes, says so, and with
`train.parallel.replan` makes the run go on in it.

What was measured is kept in the run's directory, so that the same command begins in the layout that was best.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pipelines.config import Config
from pipelines.errors import TrainingError
from pipelines.launch.layout_plan import LayoutPlan
from pipelines.monitor.worker_monitor import tag_in_background
from pipelines.planning.replanning import LayoutChange, MeasuredStep, find_change
from pipelines.tracking.training import BETTER_LAYOUT, MEASURED_SECONDS, PLANNED_LAYOUT, PLANNED_SECONDS
from pipelines.train.checkpoint.run_directory import PROGRESS, STOP, RunDirectory
from pipelines.train.step_clock import BACKWARD, DATA, EXCHANGE, FORWARD, OPTIMIZER

log = logging.getLogger(__name__)

READINGS = 3
"""Of a group's steps, about two seconds apart, that are compared; the one before, of its first steps, does not count."""
LAYOUTS = "layouts.json"
"""File of what was measured."""
_COMPUTING = (FORWARD, BACKWARD, OPTIMIZER)


class LayoutWatch:
    """Watches the groups of workers of one run, one after the other. `say` gets lines for the user, and `tag` values for the run."""

    def __init__(
        self, plan: LayoutPlan, directory: RunDirectory, say: Callable[[str], None], tag: Callable[[Mapping[str, str]], None]
    ) -> None:
        self._plan, self._directory, self._say, self._tag = plan, directory, say, tag
        self._group = _Group()
        self.change: LayoutChange | None = None
        """To which the workers were asked to save and stop."""
        self._steps: dict[int, MeasuredStep] = {}
        self._abandoned: set[int] = set()
        self._previous: int | None = None
        self._advised: int | None = None
        self._tags: dict[str, str] = {}
        self._recall()
        best = min(self._steps, key=lambda position: self._steps[position].step_seconds, default=0)
        self.position = best
        if self._plan.replans and self._advised is not None and self._advised not in self._steps:
            self._previous, self.position = best, self._advised  # an earlier command has ended before it changed

    def begin_group(self, config: Config) -> Config:
        """The config of the workers that are about to start, in the layout at `position`."""
        self._group, self.change = _Group(), None
        candidate = self._plan.candidates[self.position]
        tags = {PLANNED_LAYOUT: self._plan.describe(self.position), PLANNED_SECONDS: f"{candidate.step.step_seconds:.3g}"}
        self._record({**tags, "workers": str(candidate.layout.workers), MEASURED_SECONDS: "", BETTER_LAYOUT: ""})
        placed = self._plan.place(candidate).train
        placement = {name: getattr(placed, name) for name in ("workers", "strategy", "parallel")}
        return config.model_copy(update={"train": config.train.model_copy(update=placement)})

    def poll(self) -> None:
        """Read the run's progress. If the store fails, it is read again later."""
        if self.change is not None:
            return
        try:
            written = self._directory.glance(PROGRESS)
            if written is not None and self._group.add(written) and self._group.is_measured:
                self._compare(written["steps"] - written["step"])
        except TrainingError as error:
            log.warning("%s", error)

    def move(self, steps: int) -> None:
        """Go on in the better layout, now that the run is saved after so many steps."""
        assert self.change is not None, "the workers were asked to save for it"
        self._abandoned.add(self.position)
        self._previous, self.position = self.position, self.change.position
        self._remember()
        self._say(f"saved after step {steps:,}; the run goes on with {self._plan.describe(self.position)}")

    def moves_back(self, error: TrainingError) -> bool:
        """Whether the run can go back to the layout that it came from, because workers have failed before their first step in this one."""
        if self._previous is None or self._group.start_seconds:
            return False
        self._say(
            f"{self._plan.describe(self.position)} cannot be had: {error}; the run goes back to {self._plan.describe(self._previous)}"
        )
        self._steps[self.position] = MeasuredStep(float("inf"))
        self._abandoned |= {self.position, self._previous}
        self.position, self._previous, self._advised = self._previous, None, None
        self._remember()  # or the same command would begin in it again
        return True

    def _compare(self, steps_left: int) -> None:
        """Compare what the group has measured with the plan's other layouts. A layout that was left once, and came back, stays."""
        measured = self._steps[self.position] = self._group.step
        self._record({MEASURED_SECONDS: f"{measured.step_seconds:.3g}"})
        change = find_change(self._plan.candidates, self._steps, self.position, steps_left, self._group.start_seconds)
        if change is None or self.position in self._abandoned or change.position == self._advised:
            return
        expected = self._plan.candidates[self.position].step.step_seconds
        other = self._plan.describe(change.position)
        line = (
            f"a step takes {measured.step_seconds:.3g} s, where the plan expects {expected:.3g}; {other} would take "
            f"{change.step_seconds:.3g}, and save {change.saved_seconds:.0f} s of what is left"
        )
        self._advised = change.position
        self._remember()
        if not self._plan.replans:
            self._record({BETTER_LAYOUT: other})
            self._say(f"{line}: interrupt, and run the same command with --train.parallel.replan true, which changes to it")
            return
        self._say(f"{line}: the workers save first")
        self._directory.put(STOP, b"")
        self.change = change

    def _record(self, tags: Mapping[str, str]) -> None:
        """Tag the run with what has changed, without waiting for MLflow."""
        if new := {name: text for name, text in tags.items() if self._tags.get(name) != text}:
            self._tags |= new
            tag_in_background(self._tag, new)

    def _recall(self) -> None:
        """Take in what an earlier command has measured, of layouts that the plan still has."""
        try:
            stored = self._directory.get_json(LAYOUTS) or {}
        except TrainingError as error:
            log.warning("%s", error)
            return
        positions = {self._plan.describe(position): position for position in range(len(self._plan.candidates))}
        steps = {positions[name]: MeasuredStep(**values) for name, values in stored.get("steps", {}).items() if name in positions}
        self._steps |= steps
        self._abandoned |= {positions[name] for name in stored.get("abandoned", ()) if name in positions}
        self._advised = positions.get(stored.get("advised", ""))

    def _remember(self) -> None:
        """Write what was measured. If the store fails, the next command measures again."""
        describe = self._plan.describe
        measured = {describe(position): asdict(step) for position, step in self._steps.items() if step.step_seconds < float("inf")}
        advised = "" if self._advised is None else describe(self._advised)
        values = {"steps": measured, "abandoned": [*map(describe, sorted(self._abandoned))], "advised": advised}
        try:
            self._directory.put_json(LAYOUTS, values)
        except TrainingError as error:
            log.warning("%s", error)


@dataclass
class _Group:
    """Readings of the steps of a group of workers, from its start on."""

    started: float = field(default_factory=time.monotonic)
    start_seconds: float = 0.0
    """Until its first step."""
    _attempt: str = ""
    _last: dict[str, float] = field(default_factory=dict)
    _is_warm: bool = False
    _readings: deque[MeasuredStep] = field(default_factory=lambda: deque(maxlen=READINGS))

    def add(self, written: Mapping[str, Any]) -> bool:
        """Take in what was written. Returns whether a further reading of the steps' phases has come. Workers that were started anew after a
        death are measured anew."""
        if written["first_step"] is None:
            return False
        self.start_seconds = self.start_seconds or time.monotonic() - self.started
        if written["attempt"] != self._attempt:
            self._attempt, self._is_warm = written["attempt"], False
            self._readings.clear()
        metrics = written["metrics"]
        phases = {name: metrics[name] for name in metrics if name.startswith("time/")}
        if not phases or "train/step_seconds" not in metrics or phases == self._last:
            return False
        self._last = phases
        if self._is_warm:
            self._readings.append(read_step(metrics))
        self._is_warm = True
        return True

    @property
    def is_measured(self) -> bool:
        return len(self._readings) == READINGS

    @property
    def step(self) -> MeasuredStep:
        """The median of the readings."""
        return sorted(self._readings, key=lambda reading: reading.step_seconds)[len(self._readings) // 2]


def read_step(metrics: Mapping[str, float]) -> MeasuredStep:
    """A step by the phases of one reading; of a strategy whose clock has no phases of computing, by the curve of its steps."""
    seconds = {phase: metrics.get(f"time/{phase}_seconds") for phase in (*_COMPUTING, EXCHANGE, DATA)}
    data = seconds[DATA] or 0.0
    if seconds[FORWARD] is None:
        return MeasuredStep(metrics["train/step_seconds"], None, data)
    exchange = seconds[EXCHANGE]
    return MeasuredStep(sum(seconds[phase] or 0.0 for phase in _COMPUTING) + (exchange or 0.0) + data, exchange, data)
