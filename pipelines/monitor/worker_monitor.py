"""Reads the workers' heartbeats on the driver: names stragglers, and workers that all others wait for."""

import logging
import time
from collections.abc import Callable, Mapping
from threading import Thread

from pipelines.errors import LockstepError
from pipelines.monitor.beats import WorkerBeat, newest_group, parse_beat
from pipelines.monitor.hang import HangDetector
from pipelines.monitor.heartbeat import HEARTBEATS
from pipelines.monitor.stragglers import Stragglers
from pipelines.train.checkpoint.run_directory import DEATHS, RunDirectory

log = logging.getLogger(__name__)

POLL_SECONDS = {True: 2.5, False: 10.0}
"""On a local disk (True), and on an object store, which charges for requests."""
STRAGGLERS, HANG = "stragglers", "standstill"
"""Tags of the run."""


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
