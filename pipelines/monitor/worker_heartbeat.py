"""Heartbeats: every worker writes where it is in the background, so that a stuck collective can name the cause.

A timeout of a collective operation does not tell which worker is missing. So a thread of each worker writes the worker's
step and phase, what its clock has counted, and the line of code that it executes. A process that is stopped, or whose machine is
unreachable, stops writing.
"""

import logging
import os
import socket
import sys
import sysconfig
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from threading import Event, Thread, get_ident
from traceback import FrameSummary
from types import TracebackType
from typing import Any

from pipelines.errors import TrainingError
from pipelines.runtime.compat.torch import last_collectives
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.step_clock import OTHER, PHASES, StepClock
from pipelines.train.workers import COLLECTIVE_SHARE, WAITING_FUNCTIONS, WorkerContext

log = logging.getLogger(__name__)

HEARTBEATS, HUNG = "heartbeats", "hung"
_BEATS, _LONGEST_SECONDS = 20, 5.0
"""Heartbeats per timeout, and the longest interval between two. A worker counts as silent after two and a half intervals."""
_COLLECTIVES = (
    *("all_", "batch_isend_irecv", "broadcast", "barrier", "backward", "gather", "reduce", "scatter", "synchronize"),
    *("recv", "send", "wait_tensor", "_wait_batch_p2p"),
)
"""Prefixes of the names of torch's functions that wait for other workers; `backward` all-reduces gradients."""

_COLLECTIVES_IN_DIAGNOSTICS = 20
_STANDARD = sysconfig.get_path("stdlib")
_TIMED_OUT = ("Timed out waiting", "timed out", "timeout", "Timeout")


@dataclass(frozen=True)
class WorkerBeat:
    """One heartbeat of a worker. Every entry has a default, since a beat may be of another version."""

    beat: int = 0
    """Counts the worker's beats."""
    time: float = 0.0
    """Seconds since 1970, by the worker's clock."""
    world_size: int = 0
    host: str = ""
    node: str = ""
    """Ray's id of the machine."""
    process: int = 0
    step: int = 0
    """The step of the run that the worker executes, counted from 0."""
    phase: str = ""
    phase_seconds: float = 0.0
    """How long the phase has lasted."""
    steps: int = 0
    """Steps that the worker has begun since it started."""
    shards: int = 1
    """Shards that it owns."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """By phase, since the worker started."""
    place: str = ""
    """The line of code that it executes."""
    waits: bool = False
    """Whether that line waits for other workers."""
    failed: bool = False


def describe_position(beat: WorkerBeat) -> str:
    if not beat.steps:
        return "starting"
    number = f"step {beat.step + 1:,}"
    return f"between two steps, after {number}" if beat.phase == OTHER else f"in {beat.phase} of {number}"


def parse_beat(values: Mapping[str, Any]) -> WorkerBeat:
    return WorkerBeat(**{entry.name: values[entry.name] for entry in fields(WorkerBeat) if entry.name in values})


def newest_group(beats: Mapping[int, WorkerBeat]) -> dict[int, WorkerBeat]:
    """Return the beats of the group of workers that is alive, by rank. Files of a larger group before it remain in the directory."""
    newest = max(beats.values(), key=lambda beat: beat.time, default=WorkerBeat())
    return {rank: beat for rank, beat in sorted(beats.items()) if rank < newest.world_size == beat.world_size}


class Heartbeat:
    """Writes this worker's heartbeat while the `with` block lasts."""

    def __init__(self, directory: RunDirectory, context: WorkerContext, timeout_seconds: float) -> None:
        self._directory, self._context, self._timeout = directory, context, timeout_seconds
        self._seconds = min(timeout_seconds / _BEATS, _LONGEST_SECONDS)
        self._trainer, self._beats = get_ident(), 0
        self._stop = Event()
        self._thread = Thread(target=self._beat_until_stopped, name="heartbeat", daemon=True)
        self.step = 0
        """The step of the run that this worker executes."""
        self._clock: StepClock | None = None
        self._shards: Callable[[], int] = lambda: 1

    def watch(self, clock: StepClock, shards: Callable[[], int]) -> None:
        """From now on, beats say what the clock has counted, and how many shards the worker owns."""
        self._clock, self._shards = clock, shards

    def __enter__(self) -> "Heartbeat":
        self._beat()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Turns the timeout of a collective operation into a TrainingError that names the missing worker."""
        self._stop.set()
        self._thread.join()  # else a heartbeat in progress could overwrite the last one
        if error is None:
            return
        self._beat(failed=True)
        if isinstance(error, RuntimeError) and any(words in str(error) for words in _TIMED_OUT):
            cause = f"a collective operation waited {self._timeout * COLLECTIVE_SHARE:g} s for {self._missing_workers()}"
            log.warning("worker %d: %s", self._context.rank, cause)
            try:  # what this worker waited for, by its own clock and by torch's flight recorder
                beat = self._directory.glance(self._file(self._context.rank)) or {}
                diagnostics = {"told": cause, **beat, "last_collectives": last_collectives(_COLLECTIVES_IN_DIAGNOSTICS)}
                self._directory.put_json(f"{HUNG}/{self._context.rank}.json", diagnostics, durable=False)
            except TrainingError as failure:
                log.warning("%s", failure)
            raise TrainingError(f"{cause}; check that machine, or raise train.timeout_seconds if a step may take that long") from error

    def _beat_until_stopped(self) -> None:
        while not self._stop.wait(self._seconds):
            self._beat()

    def _beat(self, failed: bool = False) -> None:
        self._beats += 1
        own_line, waits = _current_line(traceback.extract_stack(sys._current_frames().get(self._trainer)))
        clock = self._clock
        totals = clock.totals() if clock else None
        beat = WorkerBeat(
            beat=self._beats,
            time=time.time(),
            world_size=self._context.world_size,
            host=socket.gethostname(),
            node=self._context.machine,
            process=os.getpid(),
            step=self.step,
            phase=clock.phase if clock else "",
            phase_seconds=clock.phase_seconds() if clock else 0.0,
            steps=totals.steps if totals else 0,
            shards=self._shards(),
            seconds=dict(zip(PHASES, totals.seconds, strict=True)) if totals else {},
            place=f"{own_line.name} ({own_line.filename}:{own_line.lineno})" if own_line else "",
            waits=waits,
            failed=failed,
        )
        try:
            self._directory.put_json(self._file(self._context.rank), asdict(beat), durable=False)
        except TrainingError as error:  # heartbeats may fail; if the store stays down, saving a checkpoint raises
            log.warning("%s", error)

    def _missing_workers(self) -> str:
        """Describe the workers that are silent; else those in an earlier step; else those that wait for no other worker."""
        previous = {rank: self._directory.glance(self._file(rank)) for rank in range(self._context.world_size)}
        Event().wait(2.5 * self._seconds)
        now = {rank: self._directory.glance(self._file(rank)) for rank in previous}
        candidates = [rank for rank in now if not _beat_from(now, rank).failed]  # a worker that timed out as well is not the cause
        silent = [rank for rank in candidates if now[rank] is None or now[rank] == previous[rank]]
        if silent:
            return _describe_workers(silent, "no longer answers: stopped, or unreachable", now)
        behind = [rank for rank in candidates if _beat_from(now, rank).step < self.step]
        busy = [rank for rank in candidates if not _beat_from(now, rank).waits]
        if behind or busy:
            return _describe_workers(behind or busy, "is busy with something else", now)
        return "an answer, as all other workers do: the network between them does not work"

    def _file(self, rank: int) -> str:
        return f"{HEARTBEATS}/{rank}.json"


def _current_line(stack: Sequence[FrameSummary]) -> tuple[FrameSummary | None, bool]:
    """The innermost line outside of libraries, and whether it waits for other workers."""
    own_line, waits = None, False
    for line in reversed(stack):
        is_library = "site-packages" in line.filename or "dist-packages" in line.filename  # Debian's name
        waits |= is_library and line.name.startswith(_COLLECTIVES)
        waits |= (line.filename, line.name) in WAITING_FUNCTIONS
        if not is_library and not line.filename.startswith(_STANDARD):  # a `wait` in the standard library is for this worker's own threads
            own_line = line
            break
    return own_line, waits


def _beat_from(beats: dict[int, Any], rank: int) -> WorkerBeat:
    return parse_beat(beats[rank] or {})


def _describe_workers(ranks: list[int], state: str, beats: dict[int, Any]) -> str:
    workers = []
    for rank in ranks:
        beat = _beat_from(beats, rank)
        workers.append(f"worker {rank}{f' {describe_position(beat)},' if beat.steps else ''}{f' in {beat.place}' if beat.place else ''}")
    return f"{', '.join(workers)}, which {state}"
