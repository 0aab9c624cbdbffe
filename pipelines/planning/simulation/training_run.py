"""A run of days: steps, checkpoints, failures, restarts, maintenance, and groups that shrink and grow.

Events are checkpoints and what interrupts a run, not steps: 54 days with a checkpoint every five minutes are 16,000 events.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf, sqrt

from pipelines.errors import ConfigError
from pipelines.planning.simulation.random_numbers import FAILURES, exponentials

RUN_CAUSES = ("training", "checkpoint", "lost_work", "restart", "planned", "resize", "idle")
"""`training` is steps that count; `idle` is waiting for a machine to be repaired."""
StepSeconds = Callable[[int], float]
"""Seconds of a step of the same global batch on a number of workers."""


@dataclass(frozen=True)
class CheckpointPlan:
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
    """Interruptions of a run."""

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
    workers: int, step_seconds: StepSeconds, checkpoints: CheckpointPlan, faults: Faults, duration_seconds: float, seed: int
) -> RunOutcome:
    """Train for that long. Times between failures are exponential: workers fail independently, and do not age."""
    return _Run(workers, step_seconds, checkpoints, faults, duration_seconds, seed).run()


def equal_division(workers: int, seconds: float, fixed_seconds: float = 0.0) -> StepSeconds:
    """Steps of `seconds` on `workers`, of which all but `fixed_seconds` grow as the workers become fewer."""
    return lambda remaining: (seconds - fixed_seconds) * workers / remaining + fixed_seconds


def best_interval(pause_seconds: float, mtbf_seconds: float) -> float:
    """Seconds of training between checkpoints that lose least, to first order (Young 1974). `mtbf_seconds` is that of all workers."""
    return sqrt(2 * pause_seconds * mtbf_seconds)


class _Run:
    """The state of a run at `_now`."""

    def __init__(
        self, workers: int, step_seconds: StepSeconds, checkpoints: CheckpointPlan, faults: Faults, duration: float, seed: int
    ) -> None:
        if workers < 1 or workers % faults.workers_per_machine:
            raise ConfigError(
                f"{workers} workers on machines of {faults.workers_per_machine}: machines are full; set workers to a multiple of it"
            )
        self._all, self._workers, self._step_seconds = workers, workers, step_seconds
        self._checkpoints, self._faults, self._duration, self._seed = checkpoints, faults, duration, seed
        self._now, self._steps, self._worker_seconds = 0.0, 0.0, 0.0
        self._by_cause = dict.fromkeys(RUN_CAUSES, 0.0)
        self._since_save, self._pause, self._write = 0.0, 0.0, 0.0
        """Seconds of training since the last save, and those that its pause and its write still take."""
        self._unsaved = self._being_written = (0.0, 0.0, 0.0)
        """Seconds, steps and worker-seconds of training that a failure would undo; and their part that is being written."""
        self._repairs: list[float] = []
        """When failed machines are repaired."""
        self._spares = faults.spare_machines
        self._failures, self._planned, self._resizes, self._draws = 0, 0, 0, 0
        self._next_planned = faults.planned_interval_seconds
        self._next_failure = 0.0
        self._draw_failure()

    def run(self) -> RunOutcome:
        while self._now < self._duration:
            growth = self._repairs[0] if self._repairs and self._workers < self._all else inf
            event = min(self._next_failure, self._next_planned, growth, self._duration)
            self._train_until(event)
            self._return_machines()
            if event >= self._duration:
                break
            if event == self._next_failure:
                self._fail()
            elif event == self._next_planned:
                self._pause_for_maintenance()
            if self._workers < self._all and self._spares:
                self._grow()
        self._commit(self._unsaved)
        training, steps, worker_seconds = self._by_cause["training"], self._steps, self._worker_seconds
        goodput = steps * self._step_seconds(self._all) / self._duration
        mean_workers = worker_seconds / training if training else 0.0
        return RunOutcome(self._now, self._by_cause, steps, goodput, self._failures, self._planned, self._resizes, mean_workers)

    def _train_until(self, event: float) -> None:
        """Take steps, and save whenever it is due."""
        step_seconds = self._step_seconds(self._workers)
        while self._now < event:
            if self._pause > 0:
                self._pause -= self._spend("checkpoint", min(self._pause, event - self._now))
                if self._pause <= 0:
                    self._begin_write()
                continue
            due = max(self._checkpoints.interval_seconds - self._since_save, self._write)
            boundary = self._write if self._write > 0 else due
            seconds = self._spend("training", min(due, boundary, event - self._now))
            self._unsaved = _add(self._unsaved, (seconds, seconds / step_seconds, seconds * self._workers))
            self._since_save += seconds
            if self._write > 0:
                self._write = self._write - seconds if seconds < boundary else 0.0
                if not self._write:
                    self._commit(self._being_written)
            if seconds >= due:
                self._since_save, self._pause = 0.0, self._checkpoints.pause_seconds
                if not self._pause:
                    self._begin_write()

    def _begin_write(self) -> None:
        self._being_written, self._write = self._unsaved, self._checkpoints.write_seconds
        if not self._write:
            self._commit(self._being_written)

    def _commit(self, saved: tuple[float, float, float]) -> None:
        """Count what is saved."""
        self._unsaved = _add(self._unsaved, (-saved[0], -saved[1], -saved[2]))
        self._steps, self._worker_seconds = self._steps + saved[1], self._worker_seconds + saved[2]
        self._being_written = (0.0, 0.0, 0.0)

    def _save_at_once(self) -> None:
        """Before an interruption that is announced."""
        self._spend("checkpoint", self._checkpoints.pause_seconds + self._checkpoints.write_seconds)
        self._commit(self._unsaved)
        self._since_save, self._pause, self._write = 0.0, 0.0, 0.0

    def _fail(self) -> None:
        """Lose a machine and what is not saved, and restart; again if the restart fails too."""
        self._by_cause["training"] -= self._unsaved[0]
        self._by_cause["lost_work"] += self._unsaved[0]
        self._unsaved = self._being_written = (0.0, 0.0, 0.0)
        self._since_save, self._pause, self._write = 0.0, 0.0, 0.0
        while self._now < self._duration:
            self._failures += 1
            self._workers -= self._faults.workers_per_machine
            heappush(self._repairs, self._now + self._faults.repair_seconds)
            self._replace_machine()
            self._draw_failure()
            wait = self._faults.restart_seconds
            if self._next_failure >= self._now + wait:
                self._spend("restart", wait)
                self._return_machines()
                return
            self._spend("restart", self._next_failure - self._now)
            self._return_machines()

    def _replace_machine(self) -> None:
        """With a spare; or go on without, if the group is elastic; or wait for a repair."""
        while not self._spares and not (self._faults.is_elastic and self._workers) and self._now < self._duration:
            self._spend("idle", self._repairs[0] - self._now)
            self._return_machines()
        if self._spares:
            self._spares -= 1
            self._workers += self._faults.workers_per_machine

    def _return_machines(self) -> None:
        """Repaired machines become spares."""
        while self._repairs and self._repairs[0] <= self._now:
            heappop(self._repairs)
            self._spares += 1

    def _grow(self) -> None:
        """Take in all machines that are there, and restart with them."""
        machines = min(self._spares, (self._all - self._workers) // self._faults.workers_per_machine)
        self._save_at_once()
        self._spend("resize", self._faults.resize_seconds)
        self._resizes += 1
        self._spares -= machines
        self._workers += machines * self._faults.workers_per_machine
        self._draw_failure()

    def _pause_for_maintenance(self) -> None:
        self._planned += 1
        self._save_at_once()
        self._spend("planned", self._faults.planned_seconds)
        self._return_machines()
        self._next_planned = max(self._next_planned, self._now - self._faults.planned_seconds) + self._faults.planned_interval_seconds
        self._draw_failure()

    def _draw_failure(self) -> None:
        """Anew whenever the group changes: exponential times have no memory."""
        wait = float(exponentials(1, self._seed, FAILURES, self._draws)[0]) * self._faults.worker_mtbf_seconds / max(self._workers, 1)
        self._next_failure, self._draws = self._now + wait, self._draws + 1

    def _spend(self, cause: str, seconds: float) -> float:
        """Let time pass, up to the end of the run. Returns the seconds that have passed."""
        passed = max(min(seconds, self._duration - self._now), 0.0)
        is_last = passed >= self._duration - self._now
        self._now = self._duration if is_last else self._now + passed
        self._by_cause[cause] += passed
        return passed


def _add(first: tuple[float, float, float], second: tuple[float, float, float]) -> tuple[float, float, float]:
    return first[0] + second[0], first[1] + second[1], first[2] + second[2]
