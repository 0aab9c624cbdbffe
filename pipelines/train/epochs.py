"""What every training loop does around the steps of an epoch: resume, validate, save the best, stop early, test. Knows no Ray."""

from abc import ABC, abstractmethod
from contextlib import closing
from dataclasses import asdict

from pipelines.config import Config
from pipelines.data.loader import Loader
from pipelines.data.versions.versions import Version
from pipelines.errors import NonFiniteError, TrainingError
from pipelines.tasks.base import Task
from pipelines.tasks.trivial import TrivialPredictor
from pipelines.tasks.values import Value
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.record import Record
from pipelines.train.evaluate import Evaluation
from pipelines.train.finite import check_step, check_weights, infinite_buffers
from pipelines.train.hooks import Hooks
from pipelines.train.phase_times import PhaseTimes
from pipelines.train.phases import CHECKPOINT, OTHER
from pipelines.train.remarks import remarks
from pipelines.train.saver import Saver
from pipelines.train.schedule import learning_rate
from pipelines.train.state import State, Trained, count_epoch, order_of, total_steps
from pipelines.train.step_statistics import GPU_STEPS_PER_READING, CurveWindow, PendingSteps, StepStatistics, Stopwatch, steps_per_point
from pipelines.train.strategy import Strategy
from pipelines.train.trivial import fit_trivial_predictors


class EpochLoop(ABC):
    """The loop of one worker. Every worker runs one, with the same config, version and task.

    A subclass runs the steps of an epoch, in `_train_epoch`, and may have a loader of its own.
    """

    loader_class: type[Loader] = Loader
    gpu_steps_per_reading = GPU_STEPS_PER_READING

    def __init__(self, config: Config, version: Version, task: Task, strategy: Strategy, checkpoints: Checkpoints, hooks: Hooks) -> None:
        self._config, self._settings, self._version, self._task = config, config.train, version, task
        self._strategy, self._checkpoints, self._hooks = strategy, checkpoints, hooks
        self._context, self._clock = strategy.mesh.context, strategy.clock
        self._loader = self._new_loader()
        self._validation = Evaluation(self._settings, version, "validation", task, strategy)
        self._total = total_steps(config, self._loader.rows)
        self._pending = PendingSteps(self._context.device, self.gpu_steps_per_reading)
        self._stride = steps_per_point(self._total, self._pending.steps_per_reading)
        self._saver = Saver(self._settings.checkpoint, checkpoints, hooks, self._context.rank == 0, self._clock)
        self._state = State()
        self._monitor = task.monitored(self._settings.monitor)
        self._infinite = infinite_buffers(strategy.model)
        self._left_out: tuple[str, ...] = ()
        """Machines without which the run is to go on."""
        self._losses: list[float] = []
        """Losses of the steps since the last save."""
        self._stopwatch, self._phase_times = Stopwatch(), PhaseTimes(self._clock, self._context.device)

    def _new_loader(self) -> Loader:
        return self.loader_class(
            self._version,
            "train",
            order_of(self._config),
            self._strategy.mesh.worker_shards(self._settings.shards),
            row_keys=self._task.draws,
            device=self._context.device,
            cache_bytes=self._settings.cache_bytes,
            prefetch_bytes=self._settings.prefetch_bytes,
        )

    def run(self) -> Trained:
        """Train from the last checkpoint, or from the start, to the end; then test the best epoch's weights, once.

        Raises NonFiniteError at the first step whose loss or gradient is NaN or infinite, on every worker, and
        TrainingError if the last checkpoint is not of this dataset and order.
        """
        self._resume()
        with closing(self._loader), closing(self._validation), closing(self._strategy):  # their threads end, also after an error
            try:
                while not self._is_over():
                    self._hooks.epoch(self._state.epochs + 1)
                    if not (self._train_epoch() and self._validate()):
                        return self._trained(False, self._state.best_metrics)
            except NonFiniteError:  # raised on every worker; the save in progress is of an earlier step and valid
                self._saver.commit()
                raise
        return self._test()

    @abstractmethod
    def _train_epoch(self) -> bool:
        """Run the remaining steps of the epoch. Returns False if the run was asked to stop and has been saved."""

    def _count(self, steps: list[StepStatistics], seconds: float, waited: float) -> None:
        """Reject non-finite values, add to the sums, and log a point of the curves if one is due. The steps took so many seconds
        together, and waited so many of them for data."""
        state, window = self._state, self._state.window
        state.seconds, window.seconds, window.waited = state.seconds + seconds, window.seconds + seconds, window.waited + waited
        for step in steps:
            check_step(step, self._strategy.mesh, self._settings, self._pending.overflows)
            state.rows += int(step.rows)
            self._losses.append(step.loss_sum)
            window.add(step)
        last = steps[-1].number
        if self._is_point(last):
            times = self._times(last)
            if self._context.rank == 0:
                rate = {"train/learning_rate": self._rate(last - 1)}
                self._hooks.log(last, {**window.metrics(), **self._strategy.metrics(), **rate, **times})
            state.window = CurveWindow()

    def _times(self, step: int) -> dict[str, float]:
        """Where the time went, if that is due after step `step`. Collective."""
        return self._phase_times.metrics(step, step == self._total)

    def _rate(self, number: int) -> float:
        return learning_rate(self._settings, number, self._total, self._loader.steps_per_epoch)

    def _is_over(self) -> bool:
        patience, state = self._settings.early_stopping, self._state
        return state.validated >= self._total or bool(patience and state.epochs - state.improved_epoch >= patience)

    def _is_point(self, step: int) -> bool:
        """Whether a point of the training curves is due after `step` steps."""
        return step % self._stride == 0 or step == self._total

    def _validate(self) -> bool:
        """Evaluate the epoch, and save it if it is the best or if a save is due. Returns False if the run was asked to stop; the
        state before the evaluation is then saved."""
        state = self._state
        if state.step < self._total:
            self._loader.read_ahead()
        if not state.epochs:
            self._validation.trivial = self._fitted_for("validation")
        metrics = self._validation(self._hooks.asked_to_break_off)
        if metrics is None:
            self._save(best=False)
            self._saver.commit()
            return False
        is_best = count_epoch(state, metrics, self._monitor, self._task.minimised)
        if self._context.rank == 0 and metrics:
            self._hooks.log(state.step, {**metrics, "validation/epoch": float(state.epochs)})
        self._note_baseline(self._validation)
        if is_best and (found := self._validation.evaluated()):
            self._hooks.evaluated(found)
        if text := self._strategy.sample(state.epochs):
            self._hooks.write(state.epochs, text)
        if self._saves(is_best):
            self._save(is_best)
        return True

    def _fitted_for(self, split: str) -> list[TrivialPredictor]:
        """The trivial predictors, if the split has rows to measure them on. Collective."""
        return fit_trivial_predictors(self._task, self._version, self._context.rank) if self._version.rows(split) else []

    def _note_baseline(self, evaluation: Evaluation) -> None:
        """Keep and log what the trivial predictors have reached, if they were measured."""
        self._state.baseline |= evaluation.baseline
        if self._context.rank == 0 and evaluation.baseline:
            self._hooks.log(self._state.step, {f"baseline/{name}": value for name, (value, _) in evaluation.baseline.items()})
        evaluation.baseline = {}

    def _saves(self, is_best: bool) -> bool:
        """Whether the state is saved after an epoch; the same on all workers."""
        return is_best or self._is_over() or self._saver.is_due_after_epoch(self._state.step)

    def _test(self) -> Trained:
        self._saver.commit()
        best = self._checkpoints.best()
        assert best is not None, "the first epoch is always saved as the best so far"
        state = self._strategy.state_dict()
        self._checkpoints.load(*best, state)
        self._strategy.load_state_dict(state)
        with closing(Evaluation(self._settings, self._version, "test", self._task, self._strategy)) as evaluation:
            evaluation.trivial = self._fitted_for("test")
            metrics = evaluation(self._hooks.asked_to_break_off)
        if metrics is None:  # asked to stop; the last epoch is saved
            return self._trained(False, self._state.best_metrics)
        if self._context.rank == 0 and metrics:
            self._hooks.log(self._state.step, metrics)
        self._note_baseline(evaluation)
        if found := evaluation.evaluated():
            self._hooks.evaluated(found)
        return self._trained(True, {**self._state.best_metrics, **metrics})

    def _trained(self, finished: bool, metrics: dict[str, Value]) -> Trained:
        state = self._state
        left_out = () if finished else self._left_out
        said = tuple(remarks(metrics, state.baseline, self._monitor, self._task.minimised)) if finished else ()
        return Trained(finished, state.step, state.rows, state.seconds, state.epochs, state.best_epoch, metrics, left_out, said)

    def _save(self, best: bool) -> None:
        self._clock.enter(CHECKPOINT)
        self._strategy.sync_buffers()
        state = self._strategy.state_dict()
        check_weights(state["model"], self._infinite, self._state.step)
        record = Record(
            step=self._state.step,
            position=self._loader.state_dict(),
            order=asdict(self._loader.order),
            dataset_digest=self._version.digest,
            state=asdict(self._state),
            best=best,
            unsent=self._hooks.unsent(),
            losses=self._losses,
        )
        self._losses = []
        self._saver.save(state, record)
        self._clock.enter(OTHER)

    def _resume(self) -> None:
        """Resume from the newest checkpoint, if there is one."""
        state = self._strategy.state_dict()
        found = self._checkpoints.restore(state)
        if found is None:
            self._checkpoints.forget_after(0)
            return
        name, record = found
        order = asdict(self._loader.order)
        if (record.dataset_digest, record.order) != (self._version.digest, order):
            raise TrainingError(
                f"{name} has dataset {record.dataset_digest[:12]} in order {record.order}, but this run has {self._version.digest[:12]} "
                f"in order {order}; a run can only resume with the same rows in the same order: remove the run's folder to start anew"
            )
        self._checkpoints.forget_after(record.step)
        self._strategy.load_state_dict(state)
        self._loader.load_state_dict(record.position)
        self._state = State(**{**record.state, "window": CurveWindow(**record.state["window"])})
        self._saver.saved_step = record.step
        self._phase_times.begin(record.step)
        self._hooks.resend(record.unsent)
