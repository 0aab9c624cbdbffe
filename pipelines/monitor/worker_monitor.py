"""Looks at the workers' heartbeats from the driver: names stragglers, and the worker without which nothing goes on."""

import logging
import time
from collections.abc import Callable, Mapping
from threading import Thread

from pipelines.errors import LockstepError
from pipelines.monitor.beats import Beat, beat_of, of_one_group
from pipelines.monitor.hang import Standstill
from pipelines.monitor.heartbeat import HEARTBEATS
from pipelines.monitor.stragglers import Stragglers
from pipelines.train.checkpoint.run_directory import DEATHS, RunDirectory

log = logging.getLogger(__name__)

LOOK_SECONDS = {True: 2.5, False: 10.0}
"""On a local disk (True), and on an object store, which charges for requests."""
STRAGGLERS, STANDSTILL = "stragglers", "standstill"
"""Tags of the run."""


class WorkerWatch:
    """Says what is new, and keeps it in tags of the run."""

    def __init__(self, directory: RunDirectory, say: Callable[[str], None], tag: Callable[[Mapping[str, str]], None]) -> None:
        self._directory, self._say, self._tag = directory, say, tag
        self._stragglers, self._standstill = Stragglers(), Standstill()
        self._looked = time.monotonic()
        self._died = 0.0
        self._seen, self._ended = set[tuple[str, int]](), set[tuple[str, int]]()
        """Host and process of the workers of the last look, and of those whose group has ended."""

    def look(self) -> None:
        """Look, if that is due. What fails is logged, and tried again: it ends no training."""
        if time.monotonic() - self._looked < LOOK_SECONDS[self._directory.is_local]:
            return
        self._looked = time.monotonic()
        try:
            beats = self._of_living(beats_in(self._directory))
            if said := self._stragglers.look(beats):
                self._tell(said, STRAGGLERS, "; ".join(self._stragglers.named))
            if stuck := self._standstill.look(beats):
                self._tell([stuck], STANDSTILL, stuck)
        except LockstepError as error:
            log.warning("%s", error)

    def _of_living(self, beats: dict[int, Beat]) -> dict[int, Beat]:
        """Without the workers of a group that has ended by a death: while another one starts, nobody is slow and nothing hangs.

        They are known by their processes, since the clocks of machines differ.
        """
        deaths = self._directory.glance(DEATHS)
        if deaths and deaths["time"] != self._died:
            self._died = deaths["time"]
            self._ended |= self._seen
        living = {rank: beat for rank, beat in beats.items() if (beat.host, beat.process) not in self._ended}
        self._seen = {(beat.host, beat.process) for beat in living.values()}
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


def beats_in(directory: RunDirectory) -> dict[int, Beat]:
    """The last beat of every worker of the group that is alive, by rank. Raises TrainingError if the store fails."""
    ranks = [int(name.removesuffix(".json")) for name in directory.names(HEARTBEATS) if name.removesuffix(".json").isdigit()]
    found = {rank: directory.glance(f"{HEARTBEATS}/{rank}.json") for rank in ranks}
    return of_one_group({rank: beat_of(values) for rank, values in found.items() if values})
