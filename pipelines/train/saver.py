"""Saves everything that a run continues from, and resumes it from there."""

import time
from collections.abc import Container, Mapping
from dataclasses import asdict

import torch
from torch import Tensor, nn

from pipelines.config.train.base import Checkpoint
from pipelines.data.versions.versions import Version
from pipelines.errors import NonFiniteError, TrainingError
from pipelines.planning.failures import available_interval
from pipelines.train.checkpoint.checkpoint_record import Record
from pipelines.train.checkpoint.checkpoints import Checkpoints, PendingCheckpoint
from pipelines.train.dtensor import local_part
from pipelines.train.run_context import Hooks, RunContext, State
from pipelines.train.step_clock import CHECKPOINT, OTHER
from pipelines.train.step_statistics import REMEDY, CurveWindow
from pipelines.train.strategy import Strategy
from pipelines.train.workers import all_gather_object

FIRST_SAVE_SECONDS = 1.0
"""For which training waits in a save, as long as none has been measured."""


class Saver:
    """Saves the model with its optimizer, the loader's position, and the run's progress, when that is due. At most one save is in progress,
    and training continues during it.

    All workers call `save` and `commit` at the same steps: rank 0's clock decides, and the step's all-reduce carries the decision to the
    others. They are collective, and so are `resume` and `load_best`.
    """

    def __init__(self, settings: Checkpoint, strategy: Strategy, version: Version, checkpoints: Checkpoints, hooks: Hooks) -> None:
        self._settings, self._strategy, self._version, self._checkpoints, self._hooks = settings, strategy, version, checkpoints, hooks
        self._infinite = infinite_buffers(strategy.model)
        self._pending: PendingCheckpoint | None = None
        self.saved_step, self._saved_at = 0, time.monotonic()
        self._save_seconds = FIRST_SAVE_SECONDS
        """For which training has waited in the last save."""

    @property
    def interval_seconds(self) -> float | None:
        """The seconds from one save to the next; None if time decides none. By rank 0's measurements with `every_seconds: auto`."""
        seconds = self._settings.every_seconds
        return available_interval(self._save_seconds, 3600 * self._settings.failure_hours) if seconds == "auto" else seconds

    @property
    def is_written(self) -> bool:
        """Whether this worker's part of the current save is written."""
        return self._pending is not None and self._pending.is_written

    def is_due(self, step: int) -> bool:
        """Whether the state after `step` steps should be saved; only rank 0 returns true."""
        seconds = self.interval_seconds
        by_seconds = seconds is not None and time.monotonic() - self._saved_at >= seconds
        return self._strategy.mesh.context.rank == 0 and (by_seconds or self.is_due_by_steps(step))

    def is_due_by_steps(self, step: int) -> bool:
        """Whether `every_steps` steps since the last save are done after `step` steps; the same for all workers."""
        steps = self._settings.every_steps
        return steps is not None and step - self.saved_step >= steps

    def is_due_after_epoch(self, step: int) -> bool:
        """Whether the state should be saved at the end of an epoch; the same for all workers."""
        settings = self._settings
        return self.is_due_by_steps(step) if settings.every_steps is not None else settings.every_seconds is None

    def save(self, run: RunContext, is_best: bool = False, is_awaited: bool = False) -> None:
        """Begin to save the present state, after waiting for an earlier save; if this one `is_awaited`, return when it is complete.

        Raises NonFiniteError if a weight is NaN or infinite.
        """
        self._strategy.clock.enter(CHECKPOINT)
        began = time.monotonic()
        self._strategy.sync_buffers()
        state = self._strategy.state_dict()
        check_weights(state["model"], self._infinite, run.state.step)
        record = Record(
            step=run.state.step,
            position=run.loader.state_dict(),
            order=asdict(run.loader.order),
            dataset_digest=self._version.digest,
            state=asdict(run.state),
            best=is_best,
            unsent=run.hooks.unsent(),
            losses=run.losses,
        )
        run.losses = []
        self.commit()
        self._pending = self._checkpoints.begin(state, record)
        self.saved_step, self._saved_at = record.step, time.monotonic()
        self._save_seconds = self._saved_at - began
        self._strategy.clock.enter(OTHER)
        if is_awaited:
            self.commit()

    def commit(self) -> None:
        """Complete the current save, if there is one; waits until it is written."""
        if self._pending is not None:
            self._strategy.clock.enter(CHECKPOINT)
            pending, self._pending, began = self._pending, None, time.monotonic()
            path = self._checkpoints.commit(pending)
            self._save_seconds += time.monotonic() - began
            self._strategy.clock.enter(OTHER)
            self._hooks.report_checkpoint(pending.record.step, path)

    def resume(self, run: RunContext) -> None:
        """Continue from the newest checkpoint, if there is one. Raises TrainingError if it is not of this dataset and order, or
        the best epoch's is missing."""
        state = self._strategy.state_dict()
        newest = self._checkpoints.restore(state)
        if newest is None:
            self._checkpoints.forget_after(0)
            return
        name, record = newest
        order = asdict(run.loader.order)
        if (record.dataset_digest, record.order) != (self._version.digest, order):
            raise TrainingError(
                f"{name} has dataset {record.dataset_digest[:12]} in order {record.order}, but this run has {self._version.digest[:12]} "
                f"in order {order}; a run can only resume with the same rows in the same order: remove the run's folder to start anew"
            )
        if best_epoch := record.state["best_epoch"]:
            self._checkpoints.best(best_epoch)  # else the run would miss it only at its end
        self._checkpoints.forget_after(record.step)
        self._strategy.load_state_dict(state)
        run.loader.load_state_dict(record.position)
        run.state = State(**{**record.state, "window": CurveWindow(**record.state["window"])})
        self.saved_step = record.step
        run.phase_times.begin(record.step)
        run.hooks.resend(record.unsent)

    def load_best(self, epoch: int) -> None:
        """Load the weights of the best epoch, `epoch`. Raises TrainingError if its checkpoint is missing or damaged."""
        state = self._strategy.state_dict()
        self._checkpoints.load_best(epoch, state)
        self._strategy.load_state_dict(state)


def infinite_buffers(model: nn.Module) -> frozenset[str]:
    """Names of a new model's buffers that contain infinities on purpose, such as masks."""
    return frozenset(name for name, values in model.named_buffers(remove_duplicate=False) if values.isinf().any())


def check_weights(weights: Mapping[str, Tensor], infinite: Container[str], step: int) -> None:
    """Raise NonFiniteError, on all workers alike, naming the first weight that is not finite. Collective: workers may hold
    different weights.

    The loss would show such a weight only one step later. Weights named in `infinite` may be infinite, but not NaN.
    """
    floats = {name: local_part(values) for name, values in weights.items() if values.is_floating_point()}
    wrong = {name: values.isnan().any() if name in infinite else ~values.isfinite().all() for name, values in floats.items()}
    by_device: dict[torch.device, list[Tensor]] = {}  # with one reading from each, since parts of a model may be on the CPU
    for is_wrong in wrong.values():
        by_device.setdefault(is_wrong.device, []).append(is_wrong)
    is_any_wrong = any(bool(torch.stack(flags).any()) for flags in by_device.values())
    first = next((name for name, is_wrong in wrong.items() if is_wrong), "") if is_any_wrong else ""
    if first := next(filter(None, all_gather_object(first)), ""):
        raise NonFiniteError(f"step {step}: {first} is not finite after the step: {REMEDY}")
