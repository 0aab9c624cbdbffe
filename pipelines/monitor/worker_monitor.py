"""Reads the workers' heartbeats on the driver: names stragglers, and workers that all others wait for, before a
collective operation times out.

In a synchronous group every worker's step takes as long as the slowest one's. So each worker's own time is compared: its seconds per
step in `data` and in computation, without `exchange`, in which it waits for others. Comparisons are eight seconds and four steps
apart or more. A worker is a straggler if in each of three in a row

- its own time, per step and per shard, was more than 1.5 times the median of the other workers', and
- the difference was more than a fifth of the step.

A busy machine makes no straggler of one of equal workers: a pause is in one comparison, and passing load hits different workers in
turn. A worker stops being a straggler after two comparisons in which it was not slow.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from threading import Thread

from pipelines.errors import LockstepError
from pipelines.monitor.worker_heartbeat import HEARTBEATS, WorkerBeat, describe_position, newest_group, parse_beat
from pipelines.train.checkpoint.run_directory import DEATHS, RunDirectory
from pipelines.train.step_clock import BACKWARD, DATA, EXCHANGE, FORWARD, OPTIMIZER

log = logging.getLogger(__name__)

POLL_SECONDS = {True: 2.5, False: 10.0}
"""Seconds between two looks on a local disk (True), and on an object store, which charges for requests."""
STRAGGLERS, HANG = "stragglers", "standstill"
"""Names of the run's tags."""
HANG_SECONDS = 30.0
"""A group hangs if for so long no worker has got any further."""

COMPARE_SECONDS, FEWEST_STEPS = 8.0, 4
COMPARISONS, RECOVERED = 3, 2
TIMES_OTHERS = 1.5
LEAST_SHARE = 0.2
"""The least share of a step that a straggler costs the group."""
COMPUTE = (FORWARD, BACKWARD, OPTIMIZER)


@dataclass(frozen=True)
class Slow:
    """A worker that was slower than the others in one comparison."""

    rank: int
    slow_at: str
    """`data` or `compute`."""
    own_seconds: float
    """Of a step, at what the worker is slow at."""
    others_seconds: float
    """The median of the others'."""


@dataclass
class _Streak:
    """Comparisons in a row in which a worker was slow."""

    first_step: int
    comparisons: int = 0
    recovered: int = 0
    """Comparisons since then in which it was not."""
    place: int | None = None
    """Its place in the list of stragglers, if it is one."""


class Stragglers:
    """Compares the workers' beats."""

    def __init__(self) -> None:
        self._earlier: dict[int, WorkerBeat] = {}
        self._streaks: dict[int, _Streak] = {}
        self._is_first = True
        self.named: list[str] = []
        """A text about every straggler so far, in the order in which they were named."""

    def poll(self, beats: Mapping[int, WorkerBeat]) -> list[str]:
        """Return new findings as lines to print. Call it every few seconds with the last beat of every worker."""
        if len(beats) < 2:
            return []
        processes, earlier = ({rank: (beat.host, beat.process) for rank, beat in group.items()} for group in (beats, self._earlier))
        if processes != earlier:
            self._earlier, self._streaks, self._is_first = dict(beats), {}, True
            return []
        pairs = [(self._earlier[rank], beat) for rank, beat in beats.items()]
        if any(now.time - before.time < COMPARE_SECONDS or now.steps - before.steps < FEWEST_STEPS for before, now in pairs):
            return []
        slow = compare(self._earlier, beats)
        lines = self._recover(slow, min(beat.step for beat in beats.values()))
        if slow is not None:
            first_step = 0 if self._is_first else min(beat.step for beat in self._earlier.values())
            streak = self._streaks.setdefault(slow.rank, _Streak(first_step))
            streak.comparisons, streak.recovered = streak.comparisons + 1, 0
            if streak.comparisons == COMPARISONS:
                lines.append(self._name(slow, streak, beats[slow.rank].host))
        self._earlier, self._is_first = dict(beats), False
        return lines

    def _recover(self, slow: Slow | None, step: int) -> list[str]:
        lines = []
        for rank in [rank for rank in self._streaks if slow is None or slow.rank != rank]:
            streak = self._streaks[rank]
            streak.recovered += 1
            if streak.place is None:
                del self._streaks[rank]
            elif streak.recovered >= RECOVERED:
                del self._streaks[rank]
                self.named[streak.place] += f" to step {step:,}"
                lines.append(f"worker {rank} is as fast as the others again, at step {step:,}")
        return lines

    def _name(self, slow: Slow, streak: _Streak, host: str) -> str:
        since = f"from step {streak.first_step:,}" if streak.first_step else "from the start"
        of = f"worker {slow.rank}{f' on {host}' if host else ''}"
        times = f"{slow.own_seconds / slow.others_seconds:.1f} times" if slow.others_seconds > 0 else "far above"
        streak.place = len(self.named)
        self.named.append(f"{of}: slow at {slow.slow_at}, {times} the others', {since}")
        return (
            f"{of} holds the others up {since}: it is slow at {slow.slow_at}, which takes it {slow.own_seconds:.3g} s of a step, and the "
            f"others {slow.others_seconds:.3g} s"
        )


def compare(earlier: Mapping[int, WorkerBeat], later: Mapping[int, WorkerBeat]) -> Slow | None:
    """Return the worker that was slowest between two beats of each, if it was slow by the rule above."""
    steps = {rank: later[rank].steps - earlier[rank].steps for rank in later}
    seconds_by_cause = {}
    for rank, beat in later.items():
        elapsed = {phase: (seconds - earlier[rank].seconds.get(phase, 0.0)) / steps[rank] for phase, seconds in beat.seconds.items()}
        seconds_by_cause[rank] = {"data": elapsed.get(DATA, 0.0), "compute": sum(elapsed.get(phase, 0.0) for phase in COMPUTE)}
    own_seconds = {rank: sum(causes.values()) for rank, causes in seconds_by_cause.items()}
    rank = max(own_seconds, key=own_seconds.__getitem__)
    peers = [other for other in own_seconds if other != rank]
    usual_seconds = median(own_seconds[other] for other in peers)
    shard_seconds = {other: own_seconds[other] / max(1, later[other].shards) for other in own_seconds}
    usual_shard_seconds = median(shard_seconds[other] for other in peers)
    step_seconds = median((later[other].time - earlier[other].time) / steps[other] for other in later)
    if own_seconds[rank] <= TIMES_OTHERS * usual_seconds or shard_seconds[rank] <= TIMES_OTHERS * usual_shard_seconds:
        return None
    if own_seconds[rank] - usual_seconds <= LEAST_SHARE * step_seconds:
        return None
    medians = {cause: median(seconds_by_cause[other][cause] for other in peers) for cause in seconds_by_cause[rank]}
    cause = max(medians, key=lambda cause: seconds_by_cause[rank][cause] - medians[cause])
    return Slow(rank, cause, seconds_by_cause[rank][cause], medians[cause])


class HangDetector:
    """Compares the workers' beats with earlier ones."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._last_beats: dict[int, tuple[WorkerBeat, float, float]] = {}
        """By rank: the last beat, when it came, and since when the worker is where it is."""
        self._is_reported = False

    def poll(self, beats: Mapping[int, WorkerBeat]) -> str:
        """Return a description of the hang, once for each; empty if there is none."""
        now = self._now()
        for rank, beat in beats.items():
            previous, changed, unmoved_since = self._last_beats.get(rank, (beat, now, now))
            if (previous.process, previous.beat) != (beat.process, beat.beat):
                changed = now
            place, earlier_place = ((state.process, state.step, state.steps, state.phase) for state in (beat, previous))
            self._last_beats[rank] = (beat, changed, unmoved_since if place == earlier_place else now)
        self._last_beats = {rank: self._last_beats[rank] for rank in beats}
        seconds = min((now - unmoved_since for _, _, unmoved_since in self._last_beats.values()), default=0.0)
        if seconds < HANG_SECONDS:
            self._is_reported = False
            return ""
        waiting = {rank for rank, (beat, _, _) in self._last_beats.items() if beat.waits or beat.phase == EXCHANGE}
        if self._is_reported or not waiting:
            return ""
        self._is_reported = True
        return f"no worker has got any further for {seconds:.0f} s: {self._describe(waiting, now)}"

    def _describe(self, waiting: set[int], now: float) -> str:
        """Describe the workers that all others wait for."""
        beats = {rank: beat for rank, (beat, _, _) in self._last_beats.items()}
        silent = [rank for rank, (_, changed, _) in self._last_beats.items() if now - changed >= HANG_SECONDS]
        busy = [rank for rank in beats if rank not in waiting]
        behind = [rank for rank, beat in beats.items() if beat.step < max(other.step for other in beats.values())]
        missing, state = silent, "has been silent: its process is stopped, or its machine unreachable; it was last"
        if not silent:
            missing, state = busy or behind, "is"
        if not missing:
            return "each waits for the others, so the network between them does not work"
        lines = []
        for rank in missing:
            beat = beats[rank]
            place, host = f", in {beat.place}" if beat.place else "", f" on {beat.host}" if beat.host else ""
            lines.append(f"worker {rank}{host} {state} {describe_position(beat)}{place}")
        places = sorted({describe_position(beat) for rank, beat in beats.items() if rank not in missing})
        return "; ".join(lines) + (f"; the others wait, {', '.join(places)}" if places else "")


class WorkerMonitor:
    """Reports stragglers and hangs, and keeps them in tags of the run."""

    def __init__(self, directory: RunDirectory, say: Callable[[str], None], tag: Callable[[Mapping[str, str]], None]) -> None:
        self._directory, self._say, self._tag = directory, say, tag
        self._stragglers, self._hang_detector = Stragglers(), HangDetector()
        self._last_poll = time.monotonic()
        self._last_death = 0.0
        self._processes, self._dead_processes = set[tuple[str, int]](), set[tuple[str, int]]()
        """Host and process of the workers of the last look, and of those whose group has ended."""

    def poll(self) -> None:
        """Read heartbeats, if that is due. A failure is logged, and ends no training: the next poll tries again."""
        if time.monotonic() - self._last_poll < POLL_SECONDS[self._directory.is_local]:
            return
        self._last_poll = time.monotonic()
        try:
            beats = self._without_dead(read_beats(self._directory))
            if lines := self._stragglers.poll(beats):
                self._tell(lines, STRAGGLERS, "; ".join(self._stragglers.named))
            if hang := self._hang_detector.poll(beats):
                self._tell([hang], HANG, hang)
        except LockstepError as error:
            log.warning("%s", error)

    def _without_dead(self, beats: dict[int, WorkerBeat]) -> dict[int, WorkerBeat]:
        """Leave out the workers of a group that has ended by a death: while another one starts, no worker is slow or hangs.

        Processes identify them, since the clocks of machines differ.
        """
        deaths = self._directory.glance(DEATHS)
        if deaths and deaths["time"] != self._last_death:
            self._last_death = deaths["time"]
            self._dead_processes |= self._processes
        living = {rank: beat for rank, beat in beats.items() if (beat.host, beat.process) not in self._dead_processes}
        self._processes = {(beat.host, beat.process) for beat in living.values()}
        return living

    def _tell(self, lines: list[str], name: str, text: str) -> None:
        for line in lines:
            self._say(line)
        tag_in_background(self._tag, {name: text})


def tag_in_background(tag: Callable[[dict[str, str]], None], tags: Mapping[str, str]) -> None:
    """Call `tag` in a thread, since MLflow may take minutes not to answer. A failure is logged: the run goes on without these tags."""

    def tag_and_log() -> None:
        try:
            tag(dict(tags))
        except LockstepError as error:
            log.warning("the run has no tag %s: %s", ", ".join(tags), error)

    Thread(target=tag_and_log, name="tag", daemon=True).start()


def read_beats(directory: RunDirectory) -> dict[int, WorkerBeat]:
    """The last beat of every worker of the group that is alive, by rank. Raises TrainingError if the store fails."""
    ranks = [int(name.removesuffix(".json")) for name in directory.names(HEARTBEATS) if name.removesuffix(".json").isdigit()]
    values_by_rank = {rank: directory.glance(f"{HEARTBEATS}/{rank}.json") for rank in ranks}
    return newest_group({rank: parse_beat(values) for rank, values in values_by_rank.items() if values})
