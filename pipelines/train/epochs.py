"""The epochs of a run: each is evaluated and compared with the best, and the best one's weights are tested, once."""

from collections.abc import Mapping
from contextlib import closing
from math import isnan
from typing import Literal

from pipelines.config import Config
from pipelines.data.versions.versions import Version
from pipelines.tasks.base import Monitor, Task
from pipelines.tasks.metrics.table import Value, to_number
from pipelines.tasks.trivial import TrivialPredictor
from pipelines.train.evaluate import Evaluation
from pipelines.train.run_context import RunContext, State
from pipelines.train.strategy import Strategy
from pipelines.train.trivial_baseline import fit_trivial_predictors


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
