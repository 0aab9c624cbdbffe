"""How far a run is, its result, and which epoch is the best."""

from dataclasses import dataclass, field
from math import isnan
from typing import Literal

from pipelines.config import Config
from pipelines.loader import Order
from pipelines.tasks.base import Monitor
from pipelines.train.step_statistics import CurveWindow


@dataclass
class State:
    """What a checkpoint keeps of the loop itself."""

    step: int = 0
    """Optimizer steps done."""
    rows: int = 0
    """Rows trained on, over all workers."""
    seconds: float = 0.0
    """Spent in steps; starting, evaluating and waiting for a save apart."""
    epochs: int = 0
    """Epochs validated."""
    validated: int = 0
    """Steps done at the last validation."""
    best_epoch: int = 0
    """Of equal ones that of the lower loss, then the earlier."""
    best: float | None = None
    """The monitored metric of the best epoch."""
    best_loss: float | None = None
    """What training minimises, of the best epoch on the validation split."""
    improved_epoch: int = 0
    """The first epoch of that metric, from which early stopping counts."""
    best_metrics: dict[str, float] = field(default_factory=dict)
    window: CurveWindow = field(default_factory=CurveWindow)


@dataclass(frozen=True)
class Trained:
    """A run's result."""

    finished: bool
    """False if it was asked to stop: the same command goes on from its last step."""
    steps: int
    rows: int
    seconds: float
    epochs: int
    best_epoch: int
    metrics: dict[str, float]
    """The best epoch's, on the validation and the test split."""


def order_of(config: Config) -> Order:
    """The order in which the config's training rows come."""
    train = config.train
    return Order(train.shards, train.global_batch, train.seed, train.window, train.remainder, train.shuffle)


def total_steps(config: Config, rows: int) -> int:
    """Optimizer steps of the whole run over a training split of `rows` rows. Raises ConfigError if there are none."""
    return min(config.train.epochs * order_of(config).steps(rows), config.train.max_steps or 2**63)


def count_epoch(state: State, metrics: dict[str, float], monitor: Monitor, minimised: str) -> bool:
    """Add an epoch that has been validated. Returns whether it is the best so far."""
    state.epochs, state.validated = state.epochs + 1, state.step
    name, direction = monitor
    value, loss = (metrics.get(f"validation/{metric}") for metric in (name, minimised))
    if improved := improves(value, state.best, direction):
        state.improved_epoch = state.epochs
    if is_best := improved or breaks_tie(value, loss, state):
        state.best, state.best_loss, state.best_epoch, state.best_metrics = value, loss, state.epochs, metrics
    return is_best


def improves(value: float | None, best: float | None, direction: Literal["min", "max"]) -> bool:
    """Whether a monitored value betters the best so far. Without a validation split every epoch does; not-a-number never does."""
    if value is None or best is None:
        return True
    if isnan(value) or isnan(best):
        return isnan(best) and not isnan(value)
    return value > best if direction == "max" else value < best


def breaks_tie(value: float | None, loss: float | None, state: State) -> bool:
    """Whether an epoch that monitors the same as the best has a lower loss."""
    if value is None or state.best is None:
        return False
    equal = value == state.best or (isnan(value) and isnan(state.best))
    return equal and loss is not None and improves(loss, state.best_loss, "min")
