"""Watermarks of applied updates: of each shard, all updates before its watermark, and some later ones that came early.

In the asynchronous modes an idle worker leases the first microbatch that no other worker has, so that a slow worker takes fewer. A lease
only keeps two workers from the same work; the watermarks decide what is applied. It is therefore no part of a server's contents: after a
restart some microbatches are computed twice, and still applied once.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from math import inf

APART = 8
"""A worker keeps to the shards whose rows it reads until they are so many steps ahead of another one: beginning to read a shard
takes longer than reading on."""
OVERDUE_TIMES, OVERDUE_SECONDS = 8.0, 1.0
"""A lease ends after so many times the usual seconds of a microbatch, and at least so many seconds: its worker may be stopped."""
UNKNOWN_SECONDS = 60.0
"""A lease ends after so many seconds while no microbatch has been timed yet: if a server has restarted, its workers may all be stopped."""
NEWEST_SHARE = 0.1
"""Weight of the newest microbatch in the usual seconds."""


@dataclass
class Watermarks:
    """Watermarks of all shards. Shard and step identify an update."""

    next_steps: list[int]
    """Each shard's watermark: the first step whose update has not been applied."""
    early: list[set[int]] = field(default_factory=list)
    """Each shard's steps after the watermark whose updates have been applied."""

    def __post_init__(self) -> None:
        self.early = self.early or [set() for _ in self.next_steps]

    @property
    def lowest(self) -> int:
        return min(self.next_steps)

    @property
    def applied(self) -> int:
        """Number of updates."""
        return sum(self.next_steps) + sum(map(len, self.early))

    def has(self, shard: int, step: int) -> bool:
        return step < self.next_steps[shard] or step in self.early[shard]

    def add(self, shard: int, step: int) -> None:
        early = self.early[shard]
        early.add(step)
        while self.next_steps[shard] in early:
            early.remove(self.next_steps[shard])
            self.next_steps[shard] += 1

    def first_missing(self, shard: int, besides: Container[tuple[int, int]] = ()) -> int:
        """The shard's first step that has not been applied and whose (shard, step) is not in `besides`."""
        step = self.next_steps[shard]
        while step in self.early[shard] or (shard, step) in besides:
            step += 1
        return step

    def without_gaps(self) -> list[int]:
        """The least watermark of each shard with which no update is early."""
        return [max(early, default=step - 1) + 1 for step, early in zip(self.next_steps, self.early, strict=True)]


def incomplete(by_server: Sequence[Watermarks]) -> list[tuple[int, int]]:
    """Shard and step of the updates that must still be applied so that all servers have the same ones, and none early; `by_server`
    holds the servers' watermarks."""
    ends = [max(steps) for steps in zip(*(marks.without_gaps() for marks in by_server), strict=True)]
    return [
        (shard, step)
        for shard, end in enumerate(ends)
        for step in range(min(marks.next_steps[shard] for marks in by_server), end)
        if not all(marks.has(shard, step) for marks in by_server)
    ]


@dataclass(frozen=True)
class Lease:
    shard: int
    step: int
    since: float


class Leases:
    """The leases of all workers, at most one for each."""

    def __init__(self, staleness: int | None) -> None:
        """`staleness` is the number of steps by which a microbatch may be ahead of the lowest watermark; None for any."""
        self._ahead = inf if staleness is None else staleness
        self._by_worker: dict[int, Lease] = {}
        self._readers: dict[int, int] = {}
        """The last worker of each shard."""
        self._usual_seconds: float | None = None

    def take(self, worker: int, marks: Watermarks, limits: Sequence[int], now: float) -> tuple[int, int] | None:
        """Shard and step of the worker's next microbatch; None while none may begin. Its earlier lease ends.

        `limits` has, for each shard, the step at which it ends; `now` is a time in seconds.
        """
        ended = self._by_worker.pop(worker, None)
        if ended is not None and marks.has(ended.shard, ended.step):  # the worker has pushed the update; else it is a new process
            seconds = min(now - ended.since, self._longest_seconds)
            usual = seconds if self._usual_seconds is None else self._usual_seconds
            self._usual_seconds = usual + NEWEST_SHARE * (seconds - usual)
        leased = {(lease.shard, lease.step) for lease in self._by_worker.values() if now - lease.since <= self._longest_seconds}
        due = {shard: marks.first_missing(shard, leased) for shard in range(len(limits))}
        due = {shard: step for shard, step in due.items() if step < limits[shard] and step <= marks.lowest + self._ahead}
        if not due:
            return None
        # The shard that is furthest behind: of those that the worker reads, unless another is further behind by far.
        latest = min(due.values()) + APART
        shards_of_worker = [shard for shard, step in due.items() if self._readers.get(shard) == worker and step <= latest]
        shard = min(shards_of_worker or due, key=lambda shard: (due[shard], shard in self._readers, shard))
        self._readers[shard] = worker
        self._by_worker[worker] = Lease(shard, due[shard], now)
        return shard, due[shard]

    @property
    def _longest_seconds(self) -> float:
        if self._usual_seconds is None:
            return UNKNOWN_SECONDS
        return max(OVERDUE_TIMES * self._usual_seconds, OVERDUE_SECONDS)
