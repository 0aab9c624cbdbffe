"""A run of days: steps, checkpoints, failures, restarts, maintenance, and groups that shrink and grow.

Between two events that interrupt it, training repeats a cycle: it takes steps for an interval, and pauses for a checkpoint. So only the
interruptions are events, and a run of months at 16,384 workers takes milliseconds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf, sqrt

from pipelines.errors import ConfigError
from pipelines.planning.simulation.random_numbers import FAILURES, exponentials

RUN_CAUSES = ("training", "checkpoint", "lost_work", "restart", "planned", "resize", "idle")
"""`training` is steps that count; `idle` is waiting for a machine to be repaired."""
StepSeconds = Callable[[int], float]
"""Seconds of a step of the same global batch on a number of workers."""


@dataclass(frozen=True)
class Checkpoints:
    """When the state is saved, and how long that takes."""

    interval_seconds: float
    """Of training between the end of a save's pause and the next save."""
    pause_seconds: float
    """Of training, for a save."""
    write_seconds: float = 0.0
    """After the pause, until the save can be loaded; training goes on meanwhile."""

    def __post_init__(self) -> None:
        if self.interval_seconds <= 0 or self.pause_seconds < 0 or self.write_seconds < 0:
            raise ConfigError(f"{self}: the interval is above 0, and seconds are not negative; set interval_seconds so")


@dataclass(frozen=True)
class Faults:
    """What interrupts a run."""

    worker_mtbf_seconds: float = inf
    """Mean time between failures of one worker, with its share of its machine and network."""
    restart_seconds: float = 0.0
    """From a failure to the first step after it: to notice it, to exclude the machine, to start and to load."""
    planned_interval_seconds: float = inf
    planned_seconds: float = 0.0
    """Of a planned interruption, which saves before it and loses no work."""
    workers_per_machine: int = 1
    """A failure takes so many workers away."""
    spare_machines: int = 10**9
    """That replace a failed one at the restart."""
    repair_seconds: float = 0.0
    """Until a failed machine is a spare again."""
    is_elastic: bool = False
    """Without a spare: train on with fewer workers and the same global batch, and grow as machines return. Otherwise wait for one."""
    resize_seconds: float = 0.0
    """To save and start with more workers."""

    def __post_init__(self) -> None:
        if self.worker_mtbf_seconds <= 0 or self.planned_interval_seconds <= 0 or self.workers_per_machine < 1:
            raise ConfigError(f"{self}: times between interruptions are above 0, and machines have a worker; set worker_mtbf_seconds so")


@dataclass(frozen=True)
class RunOutcome:
    """A run, as seconds by cause."""

    seconds: float
    by_cause: Mapping[str, float]
    """By RUN_CAUSES; they add up to `seconds`."""
    steps: float
    goodput: float
    """Steps that count, over those of a run of all workers without an interruption or a checkpoint."""
    failures: int
    planned: int
    resizes: int
    mean_workers: float
    """Over the seconds of training."""

    @property
    def effective_time(self) -> float:
        """Share of the seconds that went into steps that count."""
        return self.by_cause["training"] / self.seconds


def simulate_run(
    workers: int, step_seconds: StepSeconds, checkpoints: Checkpoints, faults: Faults, duration_seconds: float, seed: int
) -> RunOutcome:
    """Train for that long. Times between failures are exponential: workers fail independently, and do not age."""
    return _Run(workers, step_seconds, checkpoints, faults, duration_seconds, seed).run()


def equal_division(workers: int, seconds: float, fixed_seconds: float = 0.0) -> StepSeconds:
    """Steps of `seconds` on `workers`, of which all but `fixed_seconds` grow as the workers become fewer."""
    return lambda remaining: (seconds - fixed_seconds) * workers / remaining + fixed_seconds


def best_interval(pause_seconds: float, mtbf_seconds: float) -> float:
    """Seconds of training between checkpoints that lose least, to first order (Young 1974). `mtbf_seconds` is that of all workers."""
    return sqrt(2 * pause_seconds * mtbf_seconds)


@dataclass
class _Progress:
    """Of the training since its last start: seconds of training that a failure would undo."""

    saved: float = 0.0
    unsaved: float = 0.0
    writing: float = 0.0
    """Part of `unsaved` that is in a checkpoint still being written."""
    remaining_write: float = 0.0
    by_cause: dict[str, float] = field(default_factory=lambda: dict.fromkeys(RUN_CAUSES, 0.0))


class _Run:
    def __init__(
        self, workers: int, step_seconds: StepSeconds, checkpoints: Checkpoints, faults: Faults, duration: float, seed: int
    ) -> None:
        if workers < 1 or workers % faults.workers_per_machine:
            raise ConfigError(
                f"{workers} workers on machines of {faults.workers_per_machine}: machines are full; set workers to a multiple of it"
            )
        self._all, self._workers, self._step_seconds = workers, workers, step_seconds
        self._checkpoints, self._faults, self._duration, self._seed = checkpoints, faults, duration, seed
        self._now, self._steps, self._unsaved_steps, self._worker_seconds = 0.0, 0.0, 0.0, 0.0
        self._unsaved, self._since_save = 0.0, 0.0
        self._by_cause = dict.fromkeys(RUN_CAUSES, 0.0)
        self._repairs: list[float] = []
        """When machines are repaired."""
        self._spares = faults.spare_machines
        self._counts = {"failures": 0, "planned": 0, "resizes": 0}
        self._draws = 0
        self._next_planned = faults.planned_interval_seconds
