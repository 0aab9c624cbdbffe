"""The training loop of every strategy. Knows no Ray.

Resume; for each epoch take steps, validate and compare with the best; at the end, test the best epoch's weights, once. A step, from a batch
to new weights:

1. `strategy.batches` yields a batch of the loader.
2. `strategy.step` runs the forward and the backward pass, exchanges gradients with the other workers, and updates the weights.
3. Its result stays on the device until several are read together. Then all workers know the same of the run, which is at a point of
   consistency: here it is saved, ended, or goes on with shards dealt anew.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing
from math import isnan
from typing import Literal

from pipelines.config import Config
from pipelines.data.versions.versions import Version
from pipelines.errors import NonFiniteError
from pipelines.tasks.base import Monitor, Task
from pipelines.tasks.metrics.table import Value, to_number
from pipelines.tasks.trivial import TrivialPredictor
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.evaluate import Evaluation
from pipelines.train.run_context import Hooks, RunContext, State, Trained, total_steps
from pipelines.train.saver import Saver
from pipelines.train.shard_balancer import ShardBalancer
from pipelines.train.step_clock import DATA, OTHER
from pipelines.train.step_statistics import PendingSteps
from pipelines.train.strategy import ConsistentPoint, Strategy
from pipelines.train.trivial_baseline import curve_remarks, fit_trivial_predictors, remarks


class Loop:
    """The loop of one worker. Every worker runs one, with the same config, version and task."""

    def __init__(self, config: Config, version: Version, task: Task, strategy: Strategy, checkpoints: Checkpoints, hooks: Hooks) -> None:
        settings, loader = config.train, strategy.open_loader(config, version, task)
        self._saver = Saver(settings.checkpoint, strategy, version, checkpoints, hooks)
        pending = PendingSteps(strategy.mesh.context.device, strategy.gpu_steps_per_reading)
        self.run_context = RunContext(settings, strategy, hooks, self._saver, loader, total_steps(config, loader.rows), pending)
        self._strategy, self._task, self._settings = strategy, task, settings
        self._epochs = Epochs(self.run_context, config, version, task, strategy)
        is_balanced = settings.balance.kind == "auto" and strategy.mesh.replicas > 1
        self._balance = ShardBalancer(strategy, settings, hooks) if is_balanced else None

    def run(self) -> Trained:
        """Train from the last checkpoint, or from the start, to the end; then test the best epoch's weights, once.

        Raises NonFiniteError at the first step whose loss or gradient is NaN or infinite, on every worker, and
        TrainingError if the last checkpoint is not of this dataset and order.
        """
        run = self.run_context
        self._saver.resume(run)
        self._strategy.begin(run)
        with closing(run.loader), closing(self._epochs.validation), closing(self._strategy):  # their threads end, also after an error
            try:
                while not self._epochs.is_over:
                    run.hooks.epoch(run.state.epochs + 1)
                    if not (self._train_epoch() and self._validate()):
                        return self._result(None)
            except NonFiniteError:  # raised on every worker; the save in progress is of an earlier step and valid
                self._saver.commit()
                raise
        self._saver.commit()
        self._saver.load_best(run.state.best_epoch)
        return self._result(self._epochs.test())

    def _train_epoch(self) -> bool:
        """Take the epoch's remaining steps, and act at points of consistency. Returns False if the run was asked to stop, and has been
        saved."""
        run = self.run_context
        run.start_timing()
        while run.state.step < run.epoch_end:
            for point in self._strategy.self_paced_steps(run) or self._steps_together():
                if point.steps:
                    run.count(point.steps, *run.lap(), is_collective=True)
                if point.is_written:
                    self._saver.commit()
                if point.stop:
                    self._saver.save(run, is_awaited=True)
                    return False
                if point.save and run.state.step < run.epoch_end:
                    self._saver.save(run)
                    run.start_timing()
                if self._deal_shards():
                    break  # the strategy goes on with the rows of other shards
        return True

    def _steps_together(self) -> Iterator[ConsistentPoint]:
        """Take the epoch's remaining steps, every one on all workers together. Each is a point of consistency, as far as its result has
        been read from the device."""
        run, strategy, clock = self.run_context, self._strategy, self._strategy.clock
        workers = strategy.mesh.context.world_size
        clock.enter(DATA)
        for number, batch in enumerate(strategy.batches(run.loader), run.state.step):
            run.hooks.step(number)
            flags = run.flags(number)
            clock.start_step()
            # Forward, backward, exchange, update.
            result = strategy.step(batch, number, run.learning_rate(number), flags, run.is_point(number + 1))
            clock.enter(OTHER)
            if steps := run.pending.add(number + 1, result, self._saver.is_due_by_steps(number + 1)):
                clock.read()
                yield ConsistentPoint.after(steps, workers)
            if number + 1 == run.total_steps:
                break
            clock.enter(DATA)
        clock.enter(OTHER)
        if steps := run.pending.read():
            clock.read()
            yield ConsistentPoint.after(steps, workers)

    def _deal_shards(self) -> bool:
        """Deal the shards to workers by their speed, if that is due and worth it. Returns whether they have other owners now."""
        run, balance = self.run_context, self._balance
        if balance is None or run.state.step == run.epoch_end:
            return False
        is_dealt, run.slow_machines = balance.deal(run.state.step), balance.left_out
        if is_dealt:
            run.loader.assign_shards(self._strategy.mesh.worker_shards(self._settings.shards))
        return is_dealt

    def _validate(self) -> bool:
        """Evaluate the epoch, and save it if it is the best or if a save is due. Returns False if the run was asked to stop; the
        state before the evaluation is then saved."""
        run, is_best = self.run_context, self._epochs.validate()
        if is_best is None:
            self._saver.save(run, is_awaited=True)
            return False
        is_due = self._epochs.is_over or self._strategy.saves_every_epoch or self._saver.is_due_after_epoch(run.state.step)
        if is_best or is_due:
            self._saver.save(run, is_best)
        return True

    def _result(self, metrics: dict[str, Value] | None) -> Trained:
        """The run's result, with the test's metrics; without them, the run was asked to stop, and its last epoch is saved."""
        state, is_finished = self.run_context.state, metrics is not None
        reached = metrics if metrics is not None else state.best_metrics
        monitor = self._task.choose_monitor(self._settings.monitor)
        lines = [
            *remarks(reached, state.baseline, monitor, self._task.minimised),
            *curve_remarks(state.curve, state.epochs, state.best_epoch, self._settings, monitor),
        ]
        sentences = tuple(lines) if is_finished else ()
        slow_machines = () if is_finished else self.run_context.slow_machines
        return Trained(
            is_finished,
            state.step,
            state.rows,
            state.seconds,
            state.epochs,
            state.best_epoch,
            reached,
            slow_machines,
            state.decision,
            sentences,
        )


def count_epoch(state: State, metrics: dict[str, Value], monitor: Monitor, minimised: str) -> bool:
    """Record a validated epoch. Returns whether it is the best so far: by the loss where the monitored metric is not defined."""
    state.epochs, state.validated = state.epochs + 1, state.step
    name, direction = monitor
    value, loss = (_number(metrics, f"validation/{metric}") for metric in (name, minimised))
    by_loss = breaks_tie(value, loss, state)
    if value is not None and not isnan(value):
        state.curve.append(value)
    if improved := improves(value, state.best, direction) or (by_loss and value is not None and isnan(value)):
        state.improved_epoch = state.epochs
    if is_best := improved or by_loss:
        state.best, state.best_loss, state.best_epoch, state.best_metrics = value, loss, state.epochs, metrics
    return is_best


def _number(metrics: Mapping[str, Value], name: str) -> float | None:
    """NaN if the metric is not defined, None if there is no such metric."""
    return to_number(metrics[name]) if name in metrics else None


def improves(value: float | None, best: float | None, direction: Literal["min", "max"]) -> bool:
    """Whether a monitored value is better than the best so far: always without a validation split, never for NaN."""
    if value is None or best is None:
        return True
    if isnan(value) or isnan(best):
        return isnan(best) and not isnan(value)
    return value > best if direction == "max" else value < best


def breaks_tie(value: float | None, loss: float | None, state: State) -> bool:
    """Whether an epoch with the same monitored value as the best has a lower loss."""
    if value is None or state.best is None:
        return False
    equal = value == state.best or (isnan(value) and isnan(state.best))
    return equal and loss is not None and improves(loss, state.best_loss, "min")


class Epochs:
    """Evaluates a run's epochs, and logs their metrics. Every method is collective but `is_over`."""

    def __init__(self, run: RunContext, config: Config, version: Version, task: Task, strategy: Strategy) -> None:
        self._run, self._settings, self._version, self._task, self._strategy = run, config.train, version, task, strategy
        self._is_first_rank = strategy.mesh.context.rank == 0
        self.validation = Evaluation(config.train, version, "validation", task, strategy)
        self._monitor = task.choose_monitor(config.train.monitor)

    @property
    def is_over(self) -> bool:
        """Whether no epoch is left: all steps are done and validated, or the metric has not improved for long."""
        patience, state = self._settings.early_stopping, self._run.state
        return state.validated >= self._run.total_steps or bool(patience and state.epochs - state.improved_epoch >= patience)

    def validate(self) -> bool | None:
        """Evaluate the epoch that has just been trained. Returns whether it is the best so far; None if a worker was asked to stop
        meanwhile, and the epoch does not count."""
        run, state = self._run, self._run.state
        if state.step < run.total_steps:
            run.loader.read_ahead()
        if not state.epochs:
            self.validation.trivial = self._trivial_predictors("validation")
        metrics = self.validation(run.hooks.must_stop_evaluation)
        if metrics is None:
            return None
        is_best = count_epoch(state, metrics, self._monitor, self._task.minimised)
        if self._is_first_rank and metrics:
            run.hooks.log(state.step, {**metrics, "validation/epoch": float(state.epochs)})
        self._log_baseline(self.validation)
        if is_best:
            state.decision = self.validation.fit_decision()
        if is_best and (samples := self.validation.evaluation_data):
            run.hooks.keep_evaluation(samples)
        if text := self._strategy.sample(state.epochs):
            run.hooks.write(state.epochs, text)
        return is_best

    def test(self) -> dict[str, Value] | None:
        """Evaluate the test split. Returns its metrics, and those of the best epoch; None if a worker was asked to stop meanwhile.

        If the task has fitted a decision, the validation split is evaluated again: the epochs were compared without one."""
        run = self._run
        decided = self._evaluate("validation") if run.state.decision else {}
        if decided is None:
            return None
        run.state.best_metrics |= decided
        metrics = self._evaluate("test")
        if metrics is None:
            return None
        if self._is_first_rank and metrics:
            run.hooks.log(run.state.step, metrics)
        return {**run.state.best_metrics, **metrics}

    def _evaluate(self, split: str) -> dict[str, Value] | None:
        """The metrics of the predictions of the best epoch's weights; None if a worker was asked to stop meanwhile."""
        run = self._run
        decision = run.state.decision
        with closing(Evaluation(self._settings, self._version, split, self._task, self._strategy, decision)) as evaluation:
            if split == "test":
                evaluation.trivial = self._trivial_predictors(split)
            metrics = evaluation(run.hooks.must_stop_evaluation)
        if metrics is None:
            return None
        self._log_baseline(evaluation)
        if samples := evaluation.evaluation_data:
            run.hooks.keep_evaluation(samples)
        return metrics

    def _trivial_predictors(self, split: str) -> list[TrivialPredictor]:
        """Predictors to compare the model with, if the split has rows to measure them on."""
        return fit_trivial_predictors(self._task, self._version, self._strategy.mesh.context.rank) if self._version.rows(split) else []

    def _log_baseline(self, evaluation: Evaluation) -> None:
        """Log what the trivial predictors have reached, if they were measured, and remember it in the run's state."""
        self._run.state.baseline |= evaluation.baseline
        if self._is_first_rank and evaluation.baseline:
            metrics = {f"baseline/{name}": value for name, (value, _) in evaluation.baseline.items()}
            self._run.hooks.log(self._run.state.step, metrics)
        evaluation.baseline = {}
