"""Names a worker that holds the others up, and what it is slow at.

In a synchronous group every worker's step takes as long as the slowest one's, so what is compared is each worker's own time: its
seconds per step in `data` and in computation, without `exchange`, in which it waits for others. A worker is a straggler if in
each of three comparisons in a row, eight seconds and four steps apart or more,

- its own time, per step and per shard, was more than 1.5 times the median of the other workers', and
- the difference was more than a fifth of the step.

So a busy machine makes no straggler of one of equal workers: a pause is in one comparison, and load that comes and goes hits now this
worker, now that one. A worker stops being one after two comparisons in which it was not slow.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from pipelines.monitor.beats import Beat

COMPARE_SECONDS, FEWEST_STEPS = 8.0, 4
COMPARISONS, RECOVERED = 3, 2
TIMES_OTHERS = 1.5
LEAST_SHARE = 0.2
"""The least share of a step that a straggler costs the group."""
COMPUTE = ("forward", "backward", "optimizer")


@dataclass(frozen=True)
class Slow:
    """A worker that was slower than the others in one comparison."""

    rank: int
    slow_at: str
    """`data` or `compute`."""
    own_seconds: float
    """Per step, at what it is slow at."""
    others_seconds: float
    """The median of the others'."""


class Stragglers:
    """Compares the workers' beats."""

    def __init__(self) -> None:
        self._earlier: dict[int, Beat] = {}
        self._found: dict[int, list[Slow]] = {}
        """By rank: in how many comparisons in a row a worker was slow."""
        self._recovering: dict[int, int] = {}
        self._began: dict[int, int] = {}
        """The step at which it was seen to be slow first."""
        self._is_first = True
        self._hosts: dict[int, str] = {}
        self.named: list[str] = []
        """What is known of every straggler so far, in the order in which they were named."""
        self._places: dict[int, int] = {}
        """In `named`, of the workers that are stragglers, by rank."""

    def look(self, beats: Mapping[int, Beat]) -> list[str]:
        """What is new, as lines to print. Call it every few seconds with the last beat of every worker."""
        if len(beats) < 2:
            return []
        if _is_new_group(self._earlier, beats):
            self._earlier, self._found, self._places, self._is_first = dict(beats), {}, {}, True
            return []
        if not all(_is_later(self._earlier[rank], beat) for rank, beat in beats.items()):
            return []
        slow = compare(self._earlier, beats)
        step = min(beat.step for beat in self._earlier.values())
        self._earlier, self._hosts = dict(beats), {rank: beat.host for rank, beat in beats.items()}
        said = self._count(slow, step, min(beat.step for beat in beats.values()))
        self._is_first = False
        return said

    def _count(self, slow: Slow | None, began: int, now: int) -> list[str]:
        said = []
        for rank in list(self._found):
            if slow is None or slow.rank != rank:
                said += self._recover(rank, now)
        if slow is not None:
            rows = self._found.setdefault(slow.rank, [])
            if not rows:
                self._began[slow.rank] = 0 if self._is_first else began
            rows.append(slow)
            self._recovering.pop(slow.rank, None)
            if len(rows) == COMPARISONS:
                said.append(self._name(slow))
        return said

    def _recover(self, rank: int, now: int) -> list[str]:
        is_named = len(self._found[rank]) >= COMPARISONS
        self._recovering[rank] = self._recovering.get(rank, 0) + 1
        if is_named and self._recovering[rank] < RECOVERED:
            return []
        del self._found[rank], self._recovering[rank]
        if not is_named:
            return []
        self.named[self._places.pop(rank)] += f" to step {now:,}"
        return [f"worker {rank} is as fast as the others again, at step {now:,}"]

    def _name(self, slow: Slow) -> str:
        since = f"from step {began:,}" if (began := self._began[slow.rank]) else "from the start"
        of = f"worker {slow.rank}{f' on {host}' if (host := self._hosts.get(slow.rank)) else ''}"
        times = f"{slow.own_seconds / slow.others_seconds:.1f} times" if slow.others_seconds > 0 else "far above"
        self._places[slow.rank] = len(self.named)
        self.named.append(f"{of}: slow at {slow.slow_at}, {times} the others', {since}")
        return (
            f"{of} holds the others up {since}: it is slow at {slow.slow_at}, which takes it {slow.own_seconds:.3g} s of a step, and the "
            f"others {slow.others_seconds:.3g} s"
        )


def compare(earlier: Mapping[int, Beat], later: Mapping[int, Beat]) -> Slow | None:
    """The worker that was slowest between two beats of each, if it was slow by the rule above; there is at most one a time."""
    steps = {rank: later[rank].steps - earlier[rank].steps for rank in later}
    by_cause = {rank: _by_cause(earlier[rank], later[rank], steps[rank]) for rank in later}
    own = {rank: sum(causes.values()) for rank, causes in by_cause.items()}
    rank = max(own, key=own.__getitem__)
    others = [other for other in own if other != rank]
    usual = median(own[other] for other in others)
    of_shard = {each: own[each] / max(1, later[each].shards) for each in own}
    usual_of_shard = median(of_shard[other] for other in others)
    step_seconds = median((later[other].time - earlier[other].time) / steps[other] for other in later)
    if own[rank] <= TIMES_OTHERS * usual or of_shard[rank] <= TIMES_OTHERS * usual_of_shard:
        return None
    if own[rank] - usual <= LEAST_SHARE * step_seconds:
        return None
    medians = {cause: median(by_cause[other][cause] for other in others) for cause in by_cause[rank]}
    cause = max(medians, key=lambda cause: by_cause[rank][cause] - medians[cause])
    return Slow(rank, cause, by_cause[rank][cause], medians[cause])


def _by_cause(earlier: Beat, later: Beat, steps: int) -> dict[str, float]:
    """Seconds per step."""
    passed = {phase: (seconds - earlier.seconds.get(phase, 0.0)) / steps for phase, seconds in later.seconds.items()}
    return {"data": passed.get("data", 0.0), "compute": sum(passed.get(phase, 0.0) for phase in COMPUTE)}


def _is_new_group(earlier: Mapping[int, Beat], later: Mapping[int, Beat]) -> bool:
    return {rank: (beat.host, beat.process) for rank, beat in earlier.items()} != {
        rank: (beat.host, beat.process) for rank, beat in later.items()
    }


def _is_later(earlier: Beat, later: Beat) -> bool:
    return later.time - earlier.time >= COMPARE_SECONDS and later.steps - earlier.steps >= FEWEST_STEPS
