"""A run as a worker's loop and its strategy share it: how far it is, its loader and its schedule, and what was asked of it.

It decides when the state is saved. At most one save is in progress, and training continues during it.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from pipelines.config.train.base import Checkpoint
from pipelines.config.train.train import Train
from pipelines.data.loader import Loader
from pipelines.train.finite import check_step
from pipelines.train.hooks import Hooks
from pipelines.train.phase_times import PhaseTimes
from pipelines.train.phases import CHECKPOINT, OTHER
from pipelines.train.schedule import learning_rate
from pipelines.train.state import State
from pipelines.train.step_clock import StepClock
from pipelines.train.step_statistics import (
    SLOW_STEP_SECONDS,
    CurveWindow,
    Flags,
    PendingSteps,
    StepStatistics,
    Stopwatch,
    steps_per_point,
)

if TYPE_CHECKING:
    from pipelines.train.checkpoint.checkpoints import Checkpoints, Saving
    from pipelines.train.checkpoint.record import Record
    from pipelines.train.strategy import Strategy


class Saver:
    """Saves in the background. All workers call `save` and `commit` at the same steps: rank 0's clock decides, and the
    step's all-reduce carries the decision to the others."""

    def __init__(self, settings: Checkpoint, checkpoints: "Checkpoints", hooks: Hooks, is_first: bool, clock: StepClock) -> None:
        self._settings, self._checkpoints, self._hooks, self._is_first = settings, checkpoints, hooks, is_first
        self._clock = clock
        self._saving: Saving | None = None
        self.saved_step, self._saved_at = 0, time.monotonic()

    @property
    def is_written(self) -> bool:
        """Whether this worker's part of the current save is written."""
        return self._saving is not None and self._saving.is_written

    def is_due(self, step: int) -> bool:
        """Whether the state after `step` steps should be saved; only rank 0 returns true."""
        seconds = self._settings.every_seconds
        by_seconds = seconds is not None and time.monotonic() - self._saved_at >= seconds
        return self._is_first and (by_seconds or self.is_due_by_steps(step))

    def is_due_by_steps(self, step: int) -> bool:
        """Whether `every_steps` steps since the last save are done after `step` steps; the same for all workers."""
        steps = self._settings.every_steps
        return steps is not None and step - self.saved_step >= steps

    def is_due_after_epoch(self, step: int) -> bool:
        """Whether the state should be saved at the end of an epoch; the same for all workers."""
        settings = self._settings
        return self.is_due_by_steps(step) if settings.every_steps is not None else settings.every_seconds is None

    def save(self, state: dict[str, Any], record: "Record") -> None:
        """Begin a save, after waiting for an earlier one."""
        self.commit()
        self._saving = self._checkpoints.begin(state, record)
        self.saved_step, self._saved_at = record.step, time.monotonic()

    def commit(self) -> None:
        """Complete the current save, if there is one; waits until it is written."""
        if self._saving is not None:
            self._clock.enter(CHECKPOINT)
            saving, self._saving = self._saving, None
            path = self._checkpoints.commit(saving)
            self._clock.enter(OTHER)
            self._hooks.report_checkpoint(saving.record.step, path)


@dataclass
class RunContext:
    """A run, as one worker sees it. Steps are numbered from 0, and `state.step` is the number of steps done."""

    settings: Train
    strategy: "Strategy"
    hooks: Hooks
    saver: Saver
    loader: Loader
    total_steps: int
    pending: PendingSteps
    """Results of steps that have not been read from the device yet."""
    state: State = field(default_factory=State)
    losses: list[float] = field(default_factory=list)
    """Losses of the steps since the last save."""
    slow_machines: tuple[str, ...] = ()
    """Machines without which the run is to continue, after a stop."""

    def __post_init__(self) -> None:
        self.steps_per_point = steps_per_point(self.total_steps, self.pending.steps_per_reading)
        self.phase_times, self._stopwatch = PhaseTimes(self.strategy.clock, self.strategy.mesh.context.device), Stopwatch()
        self._step_seconds = inf

    @property
    def epoch_end(self) -> int:
        """The number of steps after which the current epoch ends, and is validated."""
        return min(self.state.validated + self.loader.steps_per_epoch, self.total_steps)

    def learning_rate(self, step: int) -> float:
        return learning_rate(self.settings, step, self.total_steps, self.loader.steps_per_epoch)

    def is_point(self, steps: int) -> bool:
        """Whether a point of the training curves is due after so many steps."""
        return steps % self.steps_per_point == 0 or steps == self.total_steps

    def flags(self, step: int) -> Flags:
        """This worker's flags in a step: what it asks of all workers."""
        stop = self.hooks.must_stop_training() or bool(self.slow_machines)
        slow = self._step_seconds > SLOW_STEP_SECONDS
        return Flags(save=self.saver.is_due(step + 1), stop=stop, written=self.saver.is_written, slow=slow)

    def start_timing(self) -> None:
        """Begin to measure the time of steps, after something else than steps."""
        self._stopwatch.start(self.loader.wait_seconds)

    def lap(self) -> tuple[float, float]:
        """The seconds since the last lap, and how many of them were spent waiting for data."""
        return self._stopwatch.lap(self.loader.wait_seconds)

    def count(self, steps: Sequence[StepStatistics], seconds: float, wait_seconds: float, is_collective: bool = False) -> None:
        """Count finished steps, which took `seconds` together, and log a point of the curves if one is due.

        Raises NonFiniteError, on all workers alike, for a loss or a gradient that is NaN or infinite. A worker may count alone; if all
        count the same steps, the call `is_collective`, and a point also says where the time went.
        """
        state, window = self.state, self.state.window
        self._step_seconds = seconds / len(steps)
        state.seconds, window.seconds, window.waited = state.seconds + seconds, window.seconds + seconds, window.waited + wait_seconds
        for step in steps:
            check_step(step, self.strategy.mesh, self.settings, self.pending.overflows)
            state.rows += int(step.rows)
            self.losses.append(step.loss_sum)
            window.add(step)
        state.step = steps[-1].number
        if self.is_point(state.step):
            times = self.phase_times.metrics(state.step, state.step == self.total_steps) if is_collective else {}
            if self.strategy.mesh.context.rank == 0:
                rate = {"train/learning_rate": self.learning_rate(state.step - 1)}
                self.hooks.log(state.step, {**window.metrics(), **self.strategy.metrics(), **rate, **times})
            state.window = CurveWindow()

    def log_phase_times(self) -> None:
        """Log where the time went since the last call, for a strategy whose workers meet rarely. Collective."""
        times = self.phase_times.metrics(self.state.step, is_last=True)
        if self.strategy.mesh.context.rank == 0:
            self.hooks.log(self.state.step, times)
