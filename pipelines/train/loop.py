"""The training loop. It knows nothing of Ray: a plain torchrun can run it, and so can one process."""

import time
from contextlib import closing
from dataclasses import asdict

import torch

from pipelines.checkpoint.checkpoints import Checkpoints
from pipelines.checkpoint.record import Record
from pipelines.collectives.context import WorkerContext
from pipelines.config import Config
from pipelines.dataset.versions import Version
from pipelines.errors import NonFiniteError, TrainingError
from pipelines.loader import Loader
from pipelines.parallel.mesh import owned_shards
from pipelines.parallel.strategy import Strategy
from pipelines.tasks.base import Task
from pipelines.train.evaluate import Evaluation
from pipelines.train.finite import check_step, check_weights, infinite_buffers
from pipelines.train.hooks import Hooks
from pipelines.train.saver import Saver
from pipelines.train.schedule import learning_rate
from pipelines.train.state import State, Trained, breaks_tie, improves, order_of, total_steps
from pipelines.train.statistics import CurveWindow, PendingSteps, StepStatistics, steps_per_point


class Loop:
    """One worker's part of a run. All workers run one, with the same config, version and task."""

    def __init__(
        self,
        config: Config,
        version: Version,
        task: Task,
        strategy: Strategy,
        context: WorkerContext,
        checkpoints: Checkpoints,
        hooks: Hooks,
    ) -> None:
        self._config, self._settings, self._version, self._task = config, config.train, version, task
        self._strategy, self._context, self._checkpoints, self._hooks = strategy, context, checkpoints, hooks
        self._loader = Loader(
            version,
            "train",
            order_of(config),
            owned_shards(context, self._settings.shards),
            row_keys=task.draws,
            device=context.device,
            cache_bytes=self._settings.cache_bytes,
            prefetch_bytes=self._settings.prefetch_bytes,
        )
        self._validation = Evaluation(self._settings, version, "validation", task, context)
        self._total = total_steps(config, self._loader.rows)
        self._pending = PendingSteps(context.device)
        self._stride = steps_per_point(self._total, self._pending.steps_per_reading)
        self._saver = Saver(self._settings.checkpoint, checkpoints, hooks, context.rank == 0)
        self._state = State()
        self._monitor = task.monitored(self._settings.monitor)
        self._infinite = infinite_buffers(strategy.model)
        self._losses: list[float] = []
        """Of the steps since the last save."""
        self._clock = self._waited = 0.0

    def run(self) -> Trained:
        """Train from the last checkpoint, or from the start, to the end; then test the best epoch's weights, once.

        Raises NonFiniteError at the first step whose loss or gradient is NaN or infinite, on every worker, and
        TrainingError if the last checkpoint is not of this dataset and order.
        """
        self._resume()
        with closing(self._loader):
            while not self._is_over():
                self._hooks.epoch(self._state.epochs + 1)
                try:
                    if not self._epoch():
                        return self._trained(False, self._state.best_metrics)
                except NonFiniteError:
                    self._saver.commit()
                    raise
                if self._state.step < self._total:
                    self._loader.read_ahead()
                if not self._validate():
                    return self._trained(False, self._state.best_metrics)
        return self._test()

    def _is_over(self) -> bool:
        patience, state = self._settings.early_stopping, self._state
        return state.validated >= self._total or bool(patience and state.epochs - state.improved_epoch >= patience)

    def _is_point(self, step: int) -> bool:
        """Whether the training curves have a point after `step` steps."""
        return step % self._stride == 0 or step == self._total

    def _epoch(self) -> bool:
        """The steps that are left of the epoch. False if the run was asked to stop, and has been saved."""
        state, saver = self._state, self._saver
        if state.step > state.validated and state.step in (self._total, state.validated + self._loader.steps_per_epoch):
            return True  # it was stopped after the epoch's last step
        self._clock, self._waited = time.perf_counter(), self._loader.wait_seconds
        for batch in self._strategy.batches(self._loader):
            rate = learning_rate(self._settings, state.step, self._total, self._loader.steps_per_epoch)
            wishes = (float(saver.is_due(state.step + 1)), float(self._hooks.asked_to_stop()), float(saver.is_written))
            sums = self._strategy.step(batch, state.step, rate, wishes, measured=self._is_point(state.step + 1))
            state.step += 1
            if (steps := self._pending.add(state.step, sums)) and not self._read(steps, rate):
                return False
            if state.step == self._total:
                break
        steps = self._pending.read()
        return not steps or self._read(steps, rate)

    def _read(self, steps: list[StepStatistics], rate: float) -> bool:
        """Check and count steps that the device has done, and do what the workers decided. False to stop."""
        now, waited = time.perf_counter(), self._loader.wait_seconds
        window = self._state.window
        window.seconds, window.waited = window.seconds + now - self._clock, window.waited + waited - self._waited
        self._state.seconds += now - self._clock
        self._clock, self._waited = now, waited
        for step in steps:
            check_step(step, self._context, self._settings.shards, self._settings.precision == "fp16", self._pending.overflows)
            self._state.rows += int(step.rows)
            self._losses.append(step.loss)
            window.add(step)
        last = steps[-1]
        if self._is_point(last.number):
            if self._context.rank == 0:
                self._hooks.log(last.number, {**window.metrics(), "train/learning_rate": rate})
            self._state.window = CurveWindow()
        if last.written == self._context.world_size:
            self._saver.commit()
        if any(step.stop for step in steps):
            self._save(best=False)
            self._saver.commit()
            return False
        if any(step.save for step in steps) and last.number % self._loader.steps_per_epoch and last.number != self._total:
            self._save(best=False)
            self._clock = time.perf_counter()
        return True

    def _validate(self) -> bool:
        """Evaluate an epoch, and save it if it is the best, or if it is time. False if the run was asked to stop, and has been
        saved as it was before."""
        state = self._state
        metrics = self._validation(self._strategy, self._hooks.asked_to_break_off)
        if metrics is None:
            self._save(best=False)
            self._saver.commit()
            return False
        state.epochs, state.validated = state.epochs + 1, state.step
        name, direction = self._monitor
        value, loss = (metrics.get(f"validation/{metric}") for metric in (name, self._task.minimised))
        if improved := improves(value, state.best, direction):
            state.improved_epoch = state.epochs
        if is_best := improved or breaks_tie(value, loss, state):
            state.best, state.best_loss, state.best_epoch, state.best_metrics = value, loss, state.epochs, metrics
        if self._context.rank == 0 and metrics:
            self._hooks.log(state.step, {**metrics, "validation/epoch": float(state.epochs)})
        if self._context.rank == 0 and (text := self._sample()):
            self._hooks.write(state.epochs, text)
        if is_best or self._is_over() or self._saver.is_due_after_epoch(state.step):
            self._save(is_best)
        return True

    @torch.no_grad()
    def _sample(self) -> str:
        """What the task gives to look at; its model is in evaluation mode meanwhile."""
        self._strategy.model.eval()
        return self._task.sample(self._strategy.model, self._state.epochs)

    def _test(self) -> Trained:
        self._saver.commit()
        best = self._checkpoints.best()
        assert best is not None, "the first epoch is always the best until then"
        state = self._strategy.state_dict()
        self._checkpoints.load(*best, state)
        self._strategy.load_state_dict(state)
        evaluation = Evaluation(self._settings, self._version, "test", self._task, self._context)
        metrics = evaluation(self._strategy, self._hooks.asked_to_break_off)
        if metrics is None:  # the last epoch is saved
            return self._trained(False, self._state.best_metrics)
        if self._context.rank == 0 and metrics:
            self._hooks.log(self._state.step, metrics)
        return self._trained(True, {**self._state.best_metrics, **metrics})

    def _trained(self, finished: bool, metrics: dict[str, float]) -> Trained:
        state = self._state
        return Trained(finished, state.step, state.rows, state.seconds, state.epochs, state.best_epoch, metrics)

    def _save(self, best: bool) -> None:
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

    def _resume(self) -> None:
        """Go on from the newest checkpoint, if there is one."""
        state = self._strategy.state_dict()
        found = self._checkpoints.restore(state)
        if found is None:
            self._checkpoints.forget_after(0)
            return
        name, record = found
        order = asdict(self._loader.order)
        if (record.dataset_digest, record.order) != (self._version.digest, order):
            raise TrainingError(
                f"{name} is of dataset {record.dataset_digest[:12]} in order {record.order}; this run has {self._version.digest[:12]} "
                f"and {order}: a run goes on with the same rows in the same order only; set another train.storage to start anew"
            )
        self._checkpoints.forget_after(record.step)
        self._strategy.load_state_dict(state)
        self._loader.load_state_dict(record.position)
        self._state = State(**{**record.state, "window": CurveWindow(**record.state["window"])})
        self._saver.saved_step = record.step
        self._hooks.resend(record.unsent)
