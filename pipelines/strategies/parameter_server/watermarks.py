"""Which updates have been applied: of each shard, all before its watermark, and some later ones that came early."""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field


@dataclass
class Watermarks:
    """Of all shards. An update is known by its shard and step."""

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
        """What each shard's watermark must become, at least, so that no update is early."""
        return [max(early, default=step - 1) + 1 for step, early in zip(self.next_steps, self.early, strict=True)]


def incomplete(every: Sequence[Watermarks]) -> list[tuple[int, int]]:
    """Shard and step of the updates that must still be applied so that all servers have the same ones, and none early; `every` holds
    the servers' watermarks."""
    ends = [max(steps) for steps in zip(*(marks.without_gaps() for marks in every), strict=True)]
    return [
        (shard, step)
        for shard, end in enumerate(ends)
        for step in range(min(marks.next_steps[shard] for marks in every), end)
        if not all(marks.has(shard, step) for marks in every)
    ]
