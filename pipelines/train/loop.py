"""The training loop of every strategy. Knows no Ray.

Resume; for each epoch take steps, validate and compare with the best; at the end, test the best epoch's weights, once.

A step, from a batch to new weights, in the order in which it runs. With strategy `ddp` it is in six files, this one and:

1. `ddp.ddp`          `DataParallel.step` divides the worker's rows into passes, in whose backward pass gradients are exchanged.
2. `passes`           seeds each step, and computes the loss of a pass, as the task has it.
3. `optimizers`       `Update` scales the loss for the backward pass, then clips gradients, and steps the optimizer.
4. `step_statistics`  `PendingSteps` keeps the step's result on the device, until several are read together.
5. `run_context`      `RunContext.count` adds up what was read, and logs points of the curves.

Then all workers know the same of the run, which is at a point of consistency: here it is saved, ended, or goes on with shards dealt anew.
"""

from collections.abc import Iterator
from contextlib import closing
from math import isnan
from typing import Literal

from pipelines.config import Config
from pipelines.data.versions.versions import Version
from pipelines.errors import NonFiniteError
from pipelines.tasks.base import Monitor, Task
from pipelines.tasks.metrics.table import Value, to_number
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.evaluate import Evaluation, curve_remarks, fit_trivial_predictors, remarks
from pipelines.train.run_context import Hooks, RunContext, State, Trained, total_steps
from pipelines.train.saver import Saver
from pipelines.train.shard_balancer import ShardBalancer
from pipelines.train.step_clock import DATA, OTHER
from pipelines.train.step_statistics import PendingSteps
from pipelines.train.strategy import ConsistentPoint, Strategy


class Loop:
    """The loop of one worker. Every worker runs one, with the same config, version and task."""

    def __init__(
        self,
        config: Config,
        version: Version,
        task: Task,
        strategy: Strategy,
        checkpoints: Checkpoints,
        hooks: Hooks,
        pause_epoch: int | None = None,
    ) -> None:
        """With a `pause_epoch`, the run stops once it has so many epochs, saved and without a test, as if it had been asked to: another
        loop goes on from there."""
        settings, loader = config.train, strategy.open_loader(config, version, task)
        self._settings, self._version, self._task, self._strategy = settings, version, task, strategy
        self._pause_epoch = pause_epoch
        self._is_first_rank, self._monitor = strategy.mesh.context.rank == 0, task.choose_monitor(settings.monitor)
        self._saver = Saver(settings.checkpoint, strategy, version, checkpoints, hooks)
        pending = PendingSteps(strategy.mesh.context.device, strategy.gpu_steps_per_reading)
        self.run_context = RunContext(settings, strategy, hooks, self._saver, loader, total_steps(config, loader.rows), pending)
        self._validation = Evaluation(settings, version, "validation", task, strategy)
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
        with closing(run.loader), closing(self._validation), closing(self._strategy):  # their threads end, also after an error
            try:
                while not (self._is_over() or self._is_paused()):
                    run.hooks.epoch(run.state.epochs + 1)
                    if self._settings.changes:  # which a checkpoint of before the change does not have
                        self._strategy.set_weight_decay(self._settings.weight_decay_after(run.state.epochs))
                    if not (self._train_epoch() and self._validate()):
                        return self._result(None)
            except NonFiniteError:  # raised on every worker; the save in progress is of an earlier step and valid
                self._saver.commit()
                raise
        self._saver.commit()
        if self._pause_epoch is not None:
            return self._result(None)
        self._saver.load_best(run.state.best_epoch)
        return self._result(self._test())

    def _is_over(self) -> bool:
        """Whether no epoch is left: all steps are done and validated, or by early stopping, the metric has not improved for long."""
        patience, state = self._settings.early_stopping, self.run_context.state
        return state.validated >= self.run_context.total_steps or bool(patience and state.epochs - state.improved_epoch >= patience)

    def _is_paused(self) -> bool:
        return self._pause_epoch is not None and self.run_context.state.epochs >= self._pause_epoch

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
                if self._balance is not None and run.state.step < run.epoch_end:
                    is_dealt, run.slow_machines = self._balance.deal(run.state.step), self._balance.left_out
                    if is_dealt:
                        run.loader.assign_shards(self._strategy.mesh.worker_shards(self._settings.shards))
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
            is_read = number + 1 == run.epoch_end or self._saver.is_due_by_steps(number + 1)
            if steps := run.pending.add(number + 1, result, is_read):
                clock.read()
                # The steps' all-reduces have also counted the workers that set each flag.
                save, stop = any(step.save for step in steps), any(step.stop for step in steps)
                yield ConsistentPoint(steps, save, stop, is_written=steps[-1].written == workers)
            if number + 1 == run.total_steps:
                break
            clock.enter(DATA)
        clock.enter(OTHER)
        assert run.state.step == run.epoch_end, "a strategy's `batches` has an input for every remaining step of the epoch"

    def _validate(self) -> bool:
        """Evaluate the epoch that has just been trained, and save it if it is the best so far, or if a save is due. Returns False if a
        worker was asked to stop meanwhile: the epoch does not count, and the state before the evaluation is saved."""
        run, state, evaluation = self.run_context, self.run_context.state, self._validation
        if state.step < run.total_steps:
            run.loader.read_ahead()
        metrics = self._evaluate(evaluation, is_compared=not state.epochs)
        if metrics is None:
            self._saver.save(run, is_awaited=True)
            return False
        is_best = count_epoch(state, metrics, self._monitor, self._task.minimised)
        if self._is_first_rank and metrics:
            run.hooks.log(state.step, {**metrics, "validation/epoch": float(state.epochs)})
        self._log_baseline(evaluation)
        if is_best:
            state.decision = evaluation.fit_decision()
        if is_best and (samples := evaluation.evaluation_data):
            run.hooks.keep_evaluation(samples)
        if text := self._strategy.sample(state.epochs):
            run.hooks.write(state.epochs, text)
        if (
            is_best
            or self._is_over()
            or self._is_paused()
            or self._strategy.saves_every_epoch
            or self._saver.is_due_after_epoch(state.step)
        ):
            self._saver.save(run, is_best)
        return True

    def _test(self) -> dict[str, Value] | None:
        """Evaluate the best epoch's weights on the test split. Returns these metrics, and those of the best epoch; None if a worker was
        asked to stop meanwhile.

        If the task has fitted a decision, the validation split is evaluated again: the epochs were compared without one."""
        run, state = self.run_context, self.run_context.state
        tested: dict[str, Value] = {}
        for split in ("validation", "test") if state.decision else ("test",):
            with closing(Evaluation(self._settings, self._version, split, self._task, self._strategy, state.decision)) as evaluation:
                metrics = self._evaluate(evaluation, is_compared=split == "test")
            if metrics is None:
                return None
            self._log_baseline(evaluation)
            if samples := evaluation.evaluation_data:
                run.hooks.keep_evaluation(samples)
            if split == "validation":
                state.best_metrics |= metrics
            else:
                tested = metrics
        if self._is_first_rank and tested:
            run.hooks.log(state.step, tested)
        return {**state.best_metrics, **tested}

    def _evaluate(self, evaluation: Evaluation, is_compared: bool) -> dict[str, Value] | None:
        """The split's metrics; None if a worker was asked to stop meanwhile. If it `is_compared`, and has rows, the trivial predictors are
        measured on it too."""
        if is_compared and self._version.rows(evaluation.split):
            evaluation.trivial = fit_trivial_predictors(self._task, self._version, self._strategy.mesh.context.rank)
        return evaluation(self.run_context.hooks.must_stop_evaluation)

    def _log_baseline(self, evaluation: Evaluation) -> None:
        """Log what the trivial predictors have reached, if they were measured, and remember it in the run's state."""
        run = self.run_context
        run.state.baseline |= evaluation.baseline
        if self._is_first_rank and evaluation.baseline:
            run.hooks.log(run.state.step, {f"baseline/{name}": value for name, (value, _) in evaluation.baseline.items()})
        evaluation.baseline = {}

    def _result(self, metrics: dict[str, Value] | None) -> Trained:
        """The run's result, with the test's metrics; without them, the run was asked to stop, and its last epoch is saved."""
        state, is_finished = self.run_context.state, metrics is not None
        reached = metrics if metrics is not None else state.best_metrics
        sentences = (
            *remarks(reached, state.baseline, self._monitor, self._task.minimised),
            *curve_remarks(state.curve, state.epochs, state.best_epoch, self._settings, self._monitor),
        )
        return Trained(
            finished=is_finished,
            steps=state.step,
            rows=state.rows,
            seconds=state.seconds,
            epochs=state.epochs,
            best_epoch=state.best_epoch,
            metrics=reached,
            left_out=() if is_finished else self.run_context.slow_machines,
            is_trained=self._is_over(),
            decision=state.decision,
            remarks=sentences if is_finished else (),
        )


def count_epoch(state: State, metrics: dict[str, Value], monitor: Monitor, minimised: str) -> bool:
    """Record a validated epoch. Returns whether it is the best so far: by the loss where the monitored metric is not defined."""
    state.epochs, state.validated = state.epochs + 1, state.step
    name, direction = monitor
    # NaN if the metric is not defined, None if there is no such metric.
    names = (f"validation/{metric}" for metric in (name, minimised))
    value, loss = (to_number(metrics[key]) if key in metrics else None for key in names)
    by_loss = breaks_tie(value, loss, state)
    if value is not None and not isnan(value):
        state.curve.append(value)
    if improved := improves(value, state.best, direction) or (by_loss and value is not None and isnan(value)):
        state.improved_epoch = state.epochs
    if is_best := improved or by_loss:
        state.best, state.best_loss, state.best_epoch, state.best_metrics = value, loss, state.epochs, metrics
    return is_best


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
