"""Saves everything that a run continues from, and resumes it from there."""

from dataclasses import asdict

from pipelines.data.versions.versions import Version
from pipelines.errors import TrainingError
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.records import Record
from pipelines.train.finite import check_weights, infinite_buffers
from pipelines.train.run_context import RunContext, State
from pipelines.train.step_clock import CHECKPOINT, OTHER
from pipelines.train.step_statistics import CurveWindow
from pipelines.train.strategy import Strategy


class Snapshots:
    """The model with its optimizer, the loader's position, and the run's progress; every call is collective."""

    def __init__(self, run: RunContext, strategy: Strategy, version: Version, checkpoints: Checkpoints) -> None:
        self._run, self._strategy, self._version, self._checkpoints = run, strategy, version, checkpoints
        self._infinite = infinite_buffers(strategy.model)

    def save(self, is_best: bool = False, is_awaited: bool = False) -> None:
        """Begin to save the present state; if the save `is_awaited`, return when it is complete.

        Raises NonFiniteError if a weight is NaN or infinite.
        """
        run = self._run
        self._strategy.clock.enter(CHECKPOINT)
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
        run.saver.save(state, record)
        self._strategy.clock.enter(OTHER)
        if is_awaited:
            run.saver.commit()

    def resume(self) -> None:
        """Continue from the newest checkpoint, if there is one. Raises TrainingError if it is not of this dataset and order, or
        the best epoch's is missing."""
        run, state = self._run, self._strategy.state_dict()
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
        run.saver.saved_step = record.step
        run.phase_times.begin(record.step)
        run.hooks.resend(record.unsent)

    def load_best(self) -> None:
        """Load the weights of the best epoch. Raises TrainingError if its checkpoint is missing or damaged."""
        state = self._strategy.state_dict()
        self._checkpoints.load_best(self._run.state.best_epoch, state)
        self._strategy.load_state_dict(state)
