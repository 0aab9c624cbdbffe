"""Watermarks of applied updates: of each shard, all updates before its watermark, and some later ones that came early."""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field


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
