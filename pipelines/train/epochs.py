"""Evaluation of epochs: each is validated and compared with the best; at the end, the best epoch's weights are tested, once."""

from contextlib import closing

from pipelines.config import Config
from pipelines.data.versions.versions import Version
from pipelines.tasks.base import Task
from pipelines.tasks.trivial import TrivialPredictor
from pipelines.tasks.values import Value
from pipelines.train.evaluate import Evaluation
from pipelines.train.run_context import RunContext
from pipelines.train.state import count_epoch
from pipelines.train.strategy import Strategy
from pipelines.train.trivial import fit_trivial_predictors


class Epochs:
    """Evaluates a run's epochs, and logs their metrics. Every method is collective but `is_over` and `close`."""

    def __init__(self, run: RunContext, config: Config, version: Version, task: Task, strategy: Strategy) -> None:
        self._run, self._settings, self._version, self._task, self._strategy = run, config.train, version, task, strategy
        self._is_first_rank = strategy.mesh.context.rank == 0
        self._validation = Evaluation(config.train, version, "validation", task, strategy)
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
            self._validation.trivial = self._trivial_predictors("validation")
        metrics = self._validation(run.hooks.is_break_requested)
        if metrics is None:
            return None
        is_best = count_epoch(state, metrics, self._monitor, self._task.minimised)
        if self._is_first_rank and metrics:
            run.hooks.log(state.step, {**metrics, "validation/epoch": float(state.epochs)})
        self._log_baseline(self._validation)
        if is_best and (samples := self._validation.evaluation_data()):
            run.hooks.keep_evaluation(samples)
        if text := self._strategy.sample(state.epochs):
            run.hooks.write(state.epochs, text)
        return is_best

    def test(self) -> dict[str, Value] | None:
        """Evaluate the test split. Returns its metrics, and those of the best epoch; None if a worker was asked to stop meanwhile."""
        run = self._run
        with closing(Evaluation(self._settings, self._version, "test", self._task, self._strategy)) as evaluation:
            evaluation.trivial = self._trivial_predictors("test")
            metrics = evaluation(run.hooks.is_break_requested)
        if metrics is None:
            return None
        if self._is_first_rank and metrics:
            run.hooks.log(run.state.step, metrics)
        self._log_baseline(evaluation)
        if samples := evaluation.evaluation_data():
            run.hooks.keep_evaluation(samples)
        return {**run.state.best_metrics, **metrics}

    def close(self) -> None:
        """End the threads that read the validation split."""
        self._validation.close()

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
