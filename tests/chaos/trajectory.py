"""What the workers wrote down, and which of it survived: of every step, what the last attempt that made it says."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Made:
    """A step that one worker made, or a shard of it."""

    step: int
    time: float
    loss: float
    rows: tuple[int, ...]


@dataclass
class Attempt:
    """One life of a group of workers."""

    name: str
    world_size: int
    born: float
    """When its last process began."""
    ready: float
    """When its last worker had torch, the group and the task."""
    made: dict[int, list[Made]]
    """By rank."""

    @property
    def first(self) -> float:
        """When its first step was made; infinite if it made none."""
        return min((made[0].time for made in self.made.values() if made), default=float("inf"))


def attempts(folder: Path) -> list[Attempt]:
    """All attempts that left records, in the order in which they began."""
    found: dict[str, Attempt] = {}
    for file in folder.glob("*.jsonl"):
        head, *lines = [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]
        attempt = found.setdefault(head["attempt"], Attempt(head["attempt"], head["world_size"], 0.0, 0.0, {}))
        attempt.born, attempt.ready = max(attempt.born, head["born"]), max(attempt.ready, head["time"])
        attempt.made[head["rank"]] = [Made(line["step"], line["time"], line["loss"], tuple(line["rows"])) for line in lines]
    return sorted(found.values(), key=lambda attempt: attempt.ready)


@dataclass
class Trajectory:
    """What survived, by step."""

    rows: dict[int, list[int]]
    losses: dict[int, list[float]]
    """In the order of ranks, and of shards where each is a pass of its own."""

    def lost_and_repeated(self, steps_per_epoch: int, global_batch: int) -> tuple[int, int]:
        """Rows of which an epoch lacks some, and rows that it has twice. An epoch's remainder is neither."""
        lost = repeated = 0
        for start in range(1, max(self.rows, default=0) + 1, steps_per_epoch):
            epoch = Counter(row for step in range(start, start + steps_per_epoch) for row in self.rows.get(step, []))
            repeated += epoch.total() - len(epoch)
            lost += steps_per_epoch * global_batch - len(epoch)
        return lost, repeated

    def curve(self) -> list[float]:
        """Every step's loss, summed over the global batch."""
        return [sum(self.losses[step]) for step in sorted(self.losses)]


def surviving(found: list[Attempt]) -> Trajectory:
    rows: dict[int, list[int]] = {}
    losses: dict[int, list[float]] = {}
    for attempt in found:  # a later one replaces what it made again
        steps = sorted({made.step for worker in attempt.made.values() for made in worker})
        for step in steps:
            of_step = [made for rank in sorted(attempt.made) for made in attempt.made[rank] if made.step == step]
            rows[step] = [row for made in of_step for row in made.rows]
            losses[step] = [made.loss for made in of_step]
    return Trajectory(rows, losses)


def steps_lost(found: list[Attempt]) -> list[int]:
    """Of every attempt but the first: steps that it had to make again."""
    made = [max((worker[-1].step for worker in attempt.made.values() if worker), default=0) for attempt in found]
    began = [min((worker[0].step for worker in attempt.made.values() if worker), default=0) for attempt in found]
    return [max(0, max(made[:number]) - start + 1) if start else 0 for number, start in enumerate(began) if number]
