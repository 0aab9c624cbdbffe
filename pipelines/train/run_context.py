"""A run as a worker's loop and its strategy share it: how far it is, its loader and its schedule, and what was asked of it.

`Hooks` tell others of its progress, and it of requests to stop; `launch` connects them with Ray and MLflow.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from pipelines.config import Config
from pipelines.config.train.train import Train
from pipelines.data.loader import Loader, Order
from pipelines.tasks.details import EvaluationData
from pipelines.tasks.metrics.table import Value
from pipelines.train.learning_rate import learning_rate
from pipelines.train.step_clock import PhaseTimes
from pipelines.train.step_statistics import SLOW_STEP_SECONDS, CurveWindow, Flags, PendingSteps, StepStatistics, check_step, steps_per_point

if TYPE_CHECKING:
    from pipelines.train.saver import Saver
    from pipelines.train.strategy import Strategy


Baseline = dict[str, tuple[float, str]]
"""The best value of each metric that a trivial predictor reaches, as `<split>/<metric>`, and the predictor that has it."""


class Hooks:
    """These do nothing; a subclass has those that it needs."""

    def log(self, step: int, metrics: Mapping[str, Value]) -> None:
        """Log a point of the curves; metrics without a value are not logged. Called on rank 0 only; returns at once."""

    def write(self, epoch: int, text: str) -> None:
        """Log a task's samples after an epoch, counted from 1. Called on rank 0 only; returns at once."""

    def keep_evaluation(self, evaluation: EvaluationData) -> None:
        """Write the details of a split, with the weights of the best epoch so far. Called on rank 0 only."""

    def epoch(self, number: int) -> None:
        """Epoch `number`, counted from 1, begins or resumes."""

    def step(self, number: int) -> None:
        """Step `number` of the run, counted from 0, begins. Returns at once."""

    def must_stop_training(self) -> bool:
        """Whether this worker was asked to save and stop. Called before every step; returns at once and has no side effect."""
        return False

    def must_stop_evaluation(self) -> bool:
        """Whether to stop an evaluation, for the same reason. Called before every batch; one worker is enough to stop all."""
        return False

    def unsent(self) -> list[Any]:
        """Points that the tracking server has not acknowledged, as JSON values. A checkpoint saves them."""
        return []

    def resend(self, points: list[Any]) -> None:
        """Log the points from a checkpoint again."""

    def report_checkpoint(self, step: int, path: str) -> None:
        """The checkpoint of `step` at `path` is complete. All workers call it at the same step."""


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
    is_trained: bool = True
    """Whether no epoch is left to train, if only by early stopping."""
    decision: dict[str, float] = field(default_factory=dict)
    """How the model's outputs are turned into predictions, by `Task.fit_decision`."""
    remarks: tuple[str, ...] = ()
    """What must be said of the metrics, in sentences."""


def train_order(config: Config) -> Order:
    """The order of the training rows according to the config."""
    train = config.train
    return Order(train.shards, train.global_batch, train.seed, train.shuffle_window, train.remainder, train.shuffle)


def epoch_steps(config: Config, rows: int) -> int:
    """Steps of an epoch over a training split of `rows` rows. Raises ConfigError if there are none."""
    return config.train.strategy.steps_per_epoch(config.train) or train_order(config).steps(rows)


def total_steps(config: Config, rows: int) -> int:
    """Optimizer steps, or rounds of clients, of the whole run over a training split of `rows` rows. Raises ConfigError if there are
    none."""
    return min(config.train.epochs * epoch_steps(config, rows), config.train.max_steps or 2**63)


def left_out_rows(config: Config, rows: int) -> int:
    """The number of rows that no step of an epoch uses."""
    drops = config.train.remainder == "drop" and config.train.strategy.reads_in_order
    return train_order(config).remainder_rows(rows) if drops else 0


@dataclass
class RunContext:
    """A run, as one worker sees it. Steps are numbered from 0, and `state.step` is the number of steps done."""

    settings: Train
    strategy: "Strategy"
    hooks: Hooks
    saver: "Saver"
    loader: Loader
    total_steps: int
    pending: PendingSteps
    """Results of steps that have not been read from the device yet."""
    state: State = field(default_factory=State)
    losses: list[float] = field(default_factory=list)
    """Losses of the steps since the last save."""
    slow_machines: tuple[str, ...] = ()
    """Machines without which the run is to continue, after a stop."""

    def __post_init__(self) -> None:
        self.steps_per_point = steps_per_point(self.total_steps, self.pending.steps_per_reading)
        self.phase_times = PhaseTimes(self.strategy.clock, self.strategy.mesh.context.device)
        self._lap_began = self._lap_waited = 0.0
        self._step_seconds = inf

    @property
    def epoch_end(self) -> int:
        """The number of steps after which the current epoch ends, and is validated."""
        return min(self.state.validated + self.loader.steps_per_epoch, self.total_steps)

    def learning_rate(self, step: int) -> float:
        return learning_rate(self.settings, step, self.total_steps, self.loader.steps_per_epoch)

    def is_point(self, steps: int) -> bool:
        """Whether a point of the training curves is due after so many steps."""
        return steps % self.steps_per_point == 0 or steps == self.total_steps

    def flags(self, step: int) -> Flags:
        """This worker's flags in a step: what it asks of all workers."""
        stop = self.hooks.must_stop_training() or bool(self.slow_machines)
        slow = self._step_seconds > SLOW_STEP_SECONDS
        return Flags(save=self.saver.is_due(step + 1), stop=stop, written=self.saver.is_written, slow=slow)

    def start_timing(self) -> None:
        """Begin to measure the time of steps, after something else than steps."""
        self._lap_began, self._lap_waited = time.perf_counter(), self.loader.wait_seconds

    def lap(self) -> tuple[float, float]:
        """The seconds since the last lap, and how many of them were spent waiting for data."""
        began, waited = self._lap_began, self._lap_waited
        self.start_timing()
        return self._lap_began - began, self._lap_waited - waited

    def count(self, steps: Sequence[StepStatistics], seconds: float, wait_seconds: float, is_collective: bool = False) -> None:
        """Count finished steps, which took `seconds` together, and log a point of the curves if one is due.

        Raises NonFiniteError, on all workers alike, for a loss or a gradient that is NaN or infinite. A worker may count alone; if all
        count the same steps, the call `is_collective`, and a point also says where the time went.
        """
        state, window = self.state, self.state.window
        self._step_seconds = seconds / len(steps)
        state.seconds, window.seconds, window.waited = state.seconds + seconds, window.seconds + seconds, window.waited + wait_seconds
        for step in steps:
            check_step(step, self.strategy.mesh, self.settings, self.pending.overflows)
            state.rows += int(step.rows)
            self.losses.append(step.loss_sum)
            window.add(step)
        state.step = steps[-1].number
        if self.is_point(state.step):
            times = self.phase_times.metrics(state.step, state.step == self.total_steps) if is_collective else {}
            if self.strategy.mesh.context.rank == 0:
                rate = {"train/learning_rate": self.learning_rate(state.step - 1)}
                self.hooks.log(state.step, {**window.metrics(), **self.strategy.metrics(), **rate, **times})
            state.window = CurveWindow()

    def log_phase_times(self) -> None:
        """Log where the time went since the last call, for a strategy whose workers meet rarely. Collective."""
        times = self.phase_times.metrics(self.state.step, is_last=True)
        if self.strategy.mesh.context.rank == 0:
            self.hooks.log(self.state.step, times)
