"""The training loop of every strategy: resume; for each epoch, take steps, act where workers agree, and validate; test. Knows no Ray.

Each epoch is compared with the best; at the end, the best epoch's weights are tested, once.
"""

from contextlib import closing

from pipelines.config import Config
from pipelines.data.versions.versions import Version
from pipelines.errors import NonFiniteError
from pipelines.tasks.base import Task
from pipelines.tasks.metrics.values import Value
from pipelines.tasks.trivial import TrivialPredictor
from pipelines.train.balance import ShardBalancer
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.evaluate import Evaluation
from pipelines.train.run_context import Hooks, RunContext, Saver, Trained, count_epoch, total_steps
from pipelines.train.snapshots import Snapshots
from pipelines.train.step_statistics import PendingSteps
from pipelines.train.strategy import Strategy
from pipelines.train.trivial import curve_remarks, fit_trivial_predictors, remarks


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


class Loop:
    """The loop of one worker. Every worker runs one, with the same config, version and task."""

    def __init__(self, config: Config, version: Version, task: Task, strategy: Strategy, checkpoints: Checkpoints, hooks: Hooks) -> None:
        settings, context, loader = config.train, strategy.mesh.context, strategy.open_loader(config, version, task)
        saver = Saver(settings.checkpoint, checkpoints, hooks, context.rank == 0, strategy.clock)
        pending = PendingSteps(context.device, strategy.gpu_steps_per_reading)
        self.run_context = RunContext(settings, strategy, hooks, saver, loader, total_steps(config, loader.rows), pending)
        self._strategy, self._task, self._settings = strategy, task, settings
        self._epochs = Epochs(self.run_context, config, version, task, strategy)
        self._snapshots = Snapshots(self.run_context, strategy, version, checkpoints)
        is_balanced = settings.balance.kind == "auto" and strategy.mesh.replicas > 1
        self._balance = ShardBalancer(strategy, settings, hooks) if is_balanced else None

    def run(self) -> Trained:
        """Train from the last checkpoint, or from the start, to the end; then test the best epoch's weights, once.

        Raises NonFiniteError at the first step whose loss or gradient is NaN or infinite, on every worker, and
        TrainingError if the last checkpoint is not of this dataset and order.
        """
        run = self.run_context
        self._snapshots.resume()
        self._strategy.begin(run)
        with closing(run.loader), closing(self._epochs.validation), closing(self._strategy):  # their threads end, also after an error
            try:
                while not self._epochs.is_over:
                    run.hooks.epoch(run.state.epochs + 1)
                    if not (self._take_steps() and self._validate()):
                        return self._result(None)
            except NonFiniteError:  # raised on every worker; the save in progress is of an earlier step and valid
                run.saver.commit()
                raise
        run.saver.commit()
        self._snapshots.load_best()
        return self._result(self._epochs.test())

    def _take_steps(self) -> bool:
        """Take the epoch's remaining steps. Returns False if the run was asked to stop, and has been saved."""
        run = self.run_context
        run.start_timing()
        while run.state.step < run.epoch_end:
            for progress in self._strategy.progress(run):
                if progress.steps:
                    run.count(progress.steps, *run.lap(), is_collective=True)
                if progress.is_written:
                    run.saver.commit()
                if progress.stop:
                    self._snapshots.save(is_awaited=True)
                    return False
                if progress.save and run.state.step < run.epoch_end:
                    self._snapshots.save()
                    run.start_timing()
                if self._deal_shards():
                    break  # the strategy goes on with the rows of other shards
        return True

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
            self._snapshots.save(is_awaited=True)
            return False
        is_due = self._epochs.is_over or self._strategy.saves_every_epoch or run.saver.is_due_after_epoch(run.state.step)
        if is_best or is_due:
            self._snapshots.save(is_best)
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
