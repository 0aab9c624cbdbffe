"""Reads the workers' heartbeats on the driver: names stragglers, and workers that all others wait for, before a
collective operation times out."""

import logging
import time
from collections.abc import Callable, Mapping
from threading import Thread

from pipelines.errors import LockstepError
from pipelines.monitor.beats import WorkerBeat, describe_position, newest_group, parse_beat
from pipelines.monitor.heartbeat import HEARTBEATS
from pipelines.monitor.stragglers import Stragglers
from pipelines.train.checkpoint.run_directory import DEATHS, RunDirectory
from pipelines.train.step_clock import EXCHANGE

log = logging.getLogger(__name__)

POLL_SECONDS = {True: 2.5, False: 10.0}
"""On a local disk (True), and on an object store, which charges for requests."""
STRAGGLERS, HANG = "stragglers", "standstill"
"""Tags of the run."""
HANG_SECONDS = 30.0
"""A group hangs if for so long no worker has got any further."""


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
            self._last_beats[rank] = (beat, changed, unmoved_since if _is_same_place(previous, beat) else now)
        self._last_beats = {rank: self._last_beats[rank] for rank in beats}
        seconds = min((now - unmoved_since for _, _, unmoved_since in self._last_beats.values()), default=0.0)
        if seconds < HANG_SECONDS:
            self._is_reported = False
            return ""
        waiting = {rank for rank, (beat, _, _) in self._last_beats.items() if beat.waits or beat.phase == EXCHANGE}
        if self._is_reported or not waiting:
            return ""
        self._is_reported = True
        return f"no worker has got any further for {seconds:.0f} s: {self._describe(self._missing_workers(waiting, now))}"

    def _missing_workers(self, waiting: set[int], now: float) -> dict[int, str]:
        """Return the workers that all others wait for, and the state of each."""
        beats = {rank: beat for rank, (beat, _, _) in self._last_beats.items()}
        silent = [rank for rank, (_, changed, _) in self._last_beats.items() if now - changed >= HANG_SECONDS]
        if silent:
            return dict.fromkeys(silent, "has been silent: its process is stopped, or its machine unreachable; it was last")
        busy = [rank for rank in beats if rank not in waiting]
        behind = [rank for rank, beat in beats.items() if beat.step < max(other.step for other in beats.values())]
        return dict.fromkeys(busy or behind, "is")

    def _describe(self, missing: Mapping[int, str]) -> str:
        if not missing:
            return "each waits for the others, so the network between them does not work"
        lines = []
        for rank, state in missing.items():
            beat, _, _ = self._last_beats[rank]
            place = f", in {beat.place}" if beat.place else ""
            host = f" on {beat.host}" if beat.host else ""
            lines.append(f"worker {rank}{host} {state} {describe_position(beat)}{place}")
        waiting = [rank for rank in self._last_beats if rank not in missing]
        places = sorted({describe_position(beat) for rank, (beat, _, _) in self._last_beats.items() if rank in waiting})
        suffix = f"; the others wait, {', '.join(places)}" if waiting else ""
        return f"{'; '.join(lines)}{suffix}"


def _is_same_place(previous: WorkerBeat, now: WorkerBeat) -> bool:
    return (previous.process, previous.step, previous.steps, previous.phase) == (now.process, now.step, now.steps, now.phase)


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
        Thread(target=self._set, args=({name: text},), name="tag", daemon=True).start()  # MLflow may take minutes not to answer

    def _set(self, tags: Mapping[str, str]) -> None:
        try:
            self._tag(tags)
        except LockstepError as error:
            log.warning("the run has no tag %s: %s", ", ".join(tags), error)


def read_beats(directory: RunDirectory) -> dict[int, WorkerBeat]:
    """The last beat of every worker of the group that is alive, by rank. Raises TrainingError if the store fails."""
    ranks = [int(name.removesuffix(".json")) for name in directory.names(HEARTBEATS) if name.removesuffix(".json").isdigit()]
    values_by_rank = {rank: directory.glance(f"{HEARTBEATS}/{rank}.json") for rank in ranks}
    return newest_group({rank: parse_beat(values) for rank, values in values_by_rank.items() if values})
