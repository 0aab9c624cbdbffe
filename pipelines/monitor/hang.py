"""Names the worker without which nothing goes on, before a collective operation times out."""

import time
from collections.abc import Callable, Mapping

from pipelines.monitor.beats import Beat, where

AFTER_SECONDS = 30.0
"""How long no worker has got any further."""
EXCHANGE = "exchange"


class Standstill:
    """Compares the workers' beats with those that it saw before."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._seen: dict[int, tuple[Beat, float, float]] = {}
        """By rank: the last beat, when it came, and since when the worker is where it is."""
        self._is_said = False

    def look(self, beats: Mapping[int, Beat]) -> str:
        """What the workers wait for, once per standstill; else empty."""
        now = self._now()
        for rank, beat in beats.items():
            before, came, since = self._seen.get(rank, (beat, now, now))
            if (before.process, before.beat) != (beat.process, beat.beat):
                came = now
            self._seen[rank] = (beat, came, since if _is_same_place(before, beat) else now)
        self._seen = {rank: self._seen[rank] for rank in beats}
        lasts = min((now - since for _, _, since in self._seen.values()), default=0.0)
        if lasts < AFTER_SECONDS:
            self._is_said = False
            return ""
        waiting = {rank for rank, (beat, _, _) in self._seen.items() if beat.waits or beat.phase == EXCHANGE}
        if self._is_said or not waiting:
            return ""
        self._is_said = True
        return f"no worker has got any further for {lasts:.0f} s: {self._worded(self._awaited(waiting, now))}"

    def _awaited(self, waiting: set[int], now: float) -> dict[int, str]:
        """The workers that the others wait for, and what is known of each."""
        beats = {rank: beat for rank, (beat, _, _) in self._seen.items()}
        silent = [rank for rank, (_, came, _) in self._seen.items() if now - came >= AFTER_SECONDS]
        if silent:
            return dict.fromkeys(silent, "has been silent: its process is stopped, or its machine unreachable; it was last")
        others = [rank for rank in beats if rank not in waiting]
        behind = [rank for rank, beat in beats.items() if beat.step < max(other.step for other in beats.values())]
        return dict.fromkeys(others or behind, "is")

    def _worded(self, awaited: Mapping[int, str]) -> str:
        if not awaited:
            return "each waits for the others, so the network between them does not work"
        told = []
        for rank, what in awaited.items():
            beat, _, _ = self._seen[rank]
            place = f", in {beat.place}" if beat.place else ""
            host = f" on {beat.host}" if beat.host else ""
            told.append(f"worker {rank}{host} {what} {where(beat)}{place}")
        others = [rank for rank in self._seen if rank not in awaited]
        places = sorted({where(beat) for rank, (beat, _, _) in self._seen.items() if rank in others})
        rest = f"; the others wait, {', '.join(places)}" if others else ""
        return f"{'; '.join(told)}{rest}"


def _is_same_place(before: Beat, now: Beat) -> bool:
    return (before.process, before.step, before.steps, before.phase) == (now.process, now.step, now.steps, now.phase)
