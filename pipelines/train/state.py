"""The progress of a run, its result, and its best epoch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isnan
from typing import Literal

from pipelines.config import Config
from pipelines.data.loader import Order
from pipelines.tasks.base import Monitor
from pipelines.tasks.metrics.table import Value, to_number
from pipelines.train.step_statistics import CurveWindow
from pipelines.train.trivial import Baseline


@dataclass
class State:
    """The loop's own state in a checkpoint."""

    step: int = 0
    """Optimizer steps done."""
    rows: int = 0
    """Rows trained on, over all workers."""
    seconds: float = 0.0
    """Seconds in steps, without starting, evaluating and waiting for a save."""
    epochs: int = 0
    """Epochs validated."""
    validated: int = 0
    """Steps done at the last validation."""
    best_epoch: int = 0
    """Counted from 1. Ties go to the lower validation loss, then to the earlier epoch."""
    best: float | None = None
    """The monitored metric of the best epoch; NaN if it is not defined."""
    best_loss: float | None = None
    """The validation loss of the best epoch."""
    improved_epoch: int = 0
    """The first epoch that reached the best metric; early stopping counts from it."""
    best_metrics: dict[str, Value] = field(default_factory=dict)
    decision: dict[str, float] = field(default_factory=dict)
    """What the task has fitted for the best epoch's weights, by `Task.fit_decision`."""
    curve: list[float] = field(default_factory=list)
    """The monitored metric of each epoch, where it is defined."""
    baseline: Baseline = field(default_factory=dict)
    """What the task's trivial predictors reach on the validation split, and once it is tested on the test split."""
    window: CurveWindow = field(default_factory=CurveWindow)


@dataclass(frozen=True)
class Trained:
    """A run's result."""

    finished: bool
    """False if the run was asked to stop; the same command resumes it after its last step."""
    steps: int
    rows: int
    seconds: float
    epochs: int
    best_epoch: int
    metrics: dict[str, Value]
    """Metrics of the best epoch, on the validation and the test split."""
    left_out: tuple[str, ...] = ()
    """Machines that the run stopped to go on without."""
    decision: dict[str, float] = field(default_factory=dict)
    """How the model's outputs are turned into predictions, by `Task.fit_decision`."""
    remarks: tuple[str, ...] = ()
    """What must be said of the metrics, in sentences."""


def train_order(config: Config) -> Order:
    """The order of the training rows according to the config."""
    train = config.train
    return Order(train.shards, train.global_batch, train.seed, train.shuffle_window, train.remainder, train.shuffle)


def total_steps(config: Config, rows: int) -> int:
    """Optimizer steps, or rounds of clients, of the whole run over a training split of `rows` rows. Raises ConfigError if there are
    none."""
    train = config.train
    per_epoch = train.strategy.steps_per_epoch(train) or train_order(config).steps(rows)
    return min(train.epochs * per_epoch, train.max_steps or 2**63)


def left_out_rows(config: Config, rows: int) -> int:
    """The number of rows that no step of an epoch uses."""
    drops = config.train.remainder == "drop" and config.train.strategy.reads_in_order
    return train_order(config).remainder_rows(rows) if drops else 0


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
