"""Decides when a run's state is saved. At most one save is in progress, and training continues during it."""

import time
from typing import Any

from pipelines.config.training import Checkpoint
from pipelines.train.checkpoint.checkpoints import Checkpoints, Saving
from pipelines.train.checkpoint.record import Record
from pipelines.train.hooks import Hooks
from pipelines.train.phases import CHECKPOINT, OTHER
from pipelines.train.step_clock import StepClock


class Saver:
    """Saves in the background. All workers call `save` and `commit` at the same steps: rank 0's clock decides, and the
    step's all-reduce carries the decision to the others."""

    def __init__(self, settings: Checkpoint, checkpoints: Checkpoints, hooks: Hooks, is_first: bool, clock: StepClock) -> None:
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
        steps, seconds = self._settings.every_steps, self._settings.every_seconds
        by_steps = steps is not None and step - self.saved_step >= steps
        by_seconds = seconds is not None and time.monotonic() - self._saved_at >= seconds
        return self._is_first and (by_steps or by_seconds)

    def is_due_after_epoch(self, step: int) -> bool:
        """Whether the state should be saved at the end of an epoch; the same for all workers."""
        steps, seconds = self._settings.every_steps, self._settings.every_seconds
        return step - self.saved_step >= steps if steps is not None else seconds is None

    def save(self, state: dict[str, Any], record: Record) -> None:
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
