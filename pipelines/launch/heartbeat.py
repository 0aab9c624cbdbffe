"""Heartbeats: every worker writes its step and code line in the background, so that a stuck collective can name the cause.

A collective operation that times out says only that some worker did not come. Each worker therefore writes, from a thread,
which step it is in and which line it executes; a process that is stopped, or whose machine is away, writes no more.
"""

import logging
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from threading import Event, Thread, get_ident
from traceback import FrameSummary
from types import TracebackType
from typing import Any

from pipelines.checkpoint.run_directory import RunDirectory
from pipelines.collectives.context import WorkerContext
from pipelines.errors import TrainingError

log = logging.getLogger(__name__)

HEARTBEATS = "heartbeats"
COLLECTIVE_SHARE = 0.8
"""Of train.timeout_seconds a collective operation may wait; the rest is for finding out for whom."""
_BEATS, _LONGEST_SECONDS = 20, 15.0
"""Beats in a timeout, and one in 15 s at least; it takes two and a half to tell that a worker is silent."""
_COLLECTIVES = ("all_", "batch_isend_irecv", "broadcast", "barrier", "backward", "gather", "reduce", "scatter", "synchronize")
"""How the names of torch's functions that wait for other workers begin; gradients are all-reduced in `backward`."""
_OWN_COLLECTIVES = {"wait": "collectives/all_reduce.py", "_send_and_receive": "collectives/transports.py"}
_STANDARD = sysconfig.get_path("stdlib")
_TIMED_OUT = ("Timed out waiting", "timed out", "timeout", "Timeout")


class Heartbeat:
    """Writes this worker's heartbeat while the `with` block lasts."""

    def __init__(self, directory: RunDirectory, context: WorkerContext, timeout_seconds: float) -> None:
        self._directory, self._context, self._timeout = directory, context, timeout_seconds
        self._seconds = min(timeout_seconds / _BEATS, _LONGEST_SECONDS)
        self._trainer, self._beats = get_ident(), 0
        self._stop = Event()
        self._thread = Thread(target=self._work, name="heartbeat", daemon=True)
        self.step = 0
        """The run's step that this worker is in."""

    def __enter__(self) -> "Heartbeat":
        if self._context.world_size > 1:
            self._beat()
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """A collective operation that timed out leaves as a TrainingError that names the worker it waited for."""
        self._stop.set()
        if self._context.world_size == 1:
            return
        self._thread.join()  # a beat under way would take the place of the last one
        if error is None:
            return
        self._beat(failed=True)
        if isinstance(error, RuntimeError) and any(words in str(error) for words in _TIMED_OUT):
            told = f"a collective operation waited {self._timeout * COLLECTIVE_SHARE:g} s for {self._late()}"
            log.warning("worker %d: %s", self._context.rank, told)
            raise TrainingError(f"{told}; see to that machine, or raise train.timeout_seconds if a step may take so long") from error

    def _work(self) -> None:
        while not self._stop.wait(self._seconds):
            self._beat()

    def _beat(self, failed: bool = False) -> None:
        self._beats += 1
        own, waits = _whereabouts(traceback.extract_stack(sys._current_frames().get(self._trainer)))
        beat = {
            "beat": self._beats,
            "step": self.step,
            "place": f"{own.name} ({own.filename}:{own.lineno})" if own else "",
            "waits": waits,
            "failed": failed,
        }
        try:
            self._directory.put_json(self._file(self._context.rank), beat, durable=False)
        except TrainingError as error:  # what must be written is the checkpoints' to say
            log.warning("%s", error)

    def _late(self) -> str:
        """The workers that do not answer, else those that are behind, else those that wait for nobody."""
        before = {rank: self._directory.glance(self._file(rank)) for rank in range(self._context.world_size)}
        Event().wait(2.5 * self._seconds)
        now = {rank: self._directory.glance(self._file(rank)) for rank in before}
        others = [rank for rank in now if not _of(now, rank)["failed"]]  # who waited in vain as well is no cause
        silent = [rank for rank in others if now[rank] is None or now[rank] == before[rank]]
        if silent:
            return _named(silent, "does not answer any more: stopped, or cut off", now)
        behind = [rank for rank in others if _of(now, rank)["step"] < self.step]
        busy = [rank for rank in others if not _of(now, rank)["waits"]]
        if behind or busy:
            return _named(behind or busy, "is at work elsewhere", now)
        return "an answer, as all workers do: the network between them is stuck"

    def _file(self, rank: int) -> str:
        return f"{HEARTBEATS}/{rank}.json"


def _whereabouts(stack: Sequence[FrameSummary]) -> tuple[FrameSummary | None, bool]:
    """The innermost line that is no library's, and whether it waits for other workers."""
    own, waits = None, False
    for line in reversed(stack):
        is_library = "site-packages" in line.filename or "dist-packages" in line.filename  # of Debian
        waits |= is_library and line.name.startswith(_COLLECTIVES)
        waits |= line.filename.endswith(_OWN_COLLECTIVES.get(line.name, "-"))
        if not is_library and not line.filename.startswith(_STANDARD):  # a queue's `wait` is for this worker's own threads
            own = line
            break
    return own, waits


def _of(beats: dict[int, Any], rank: int) -> dict[str, Any]:
    return beats[rank] or {"step": 0, "place": "", "waits": False, "failed": False}


def _named(ranks: list[int], what: str, beats: dict[int, Any]) -> str:
    places = [f"worker {rank}{f' in {place}' if (place := _of(beats, rank)['place']) else ''}" for rank in ranks]
    return f"{', '.join(places)}, which {what}"
