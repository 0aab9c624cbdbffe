"""Names the worker without which nothing goes on, before a collective operation times out."""

import time
from collections.abc import Callable, Mapping

from pipelines.monitor.beats import WorkerBeat, describe_position
from pipelines.train.phases import EXCHANGE

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
