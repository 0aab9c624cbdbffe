"""The steps that the workers wrote down, and those that survived: of every step, what the last attempt that took it says."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class StepRecord:
    """A step that one worker took, or a shard of it."""

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
    steps: dict[int, list[StepRecord]]
    """By rank."""

    @property
    def first(self) -> float:
        """When it took its first step; infinite if it took none."""
        return min((steps[0].time for steps in self.steps.values() if steps), default=float("inf"))


def attempts(folder: Path) -> list[Attempt]:
    """All attempts that left records, in the order in which they began."""
    by_name: dict[str, Attempt] = {}
    for file in folder.glob("*.jsonl"):
        head, *lines = [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]
        attempt = by_name.setdefault(head["attempt"], Attempt(head["attempt"], head["world_size"], 0.0, 0.0, {}))
        attempt.born, attempt.ready = max(attempt.born, head["born"]), max(attempt.ready, head["time"])
        attempt.steps[head["rank"]] = [StepRecord(line["step"], line["time"], line["loss"], tuple(line["rows"])) for line in lines]
    return sorted(by_name.values(), key=lambda attempt: attempt.ready)


@dataclass
class Trajectory:
    """Steps that survived, by number."""

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


def surviving_steps(attempts: list[Attempt]) -> Trajectory:
    rows: dict[int, list[int]] = {}
    losses: dict[int, list[float]] = {}
    for attempt in attempts:  # a later one replaces the steps that it took again
        by_step: dict[int, list[StepRecord]] = {}
        for rank in sorted(attempt.steps):
            for record in attempt.steps[rank]:
                by_step.setdefault(record.step, []).append(record)
        rows |= {step: [row for record in records for row in record.rows] for step, records in by_step.items()}
        losses |= {step: [record.loss for record in records] for step, records in by_step.items()}
    return Trajectory(rows, losses)


def steps_lost(attempts: list[Attempt]) -> list[int]:
    """Steps that each attempt but the first had to take again."""
    last = [max((worker[-1].step for worker in attempt.steps.values() if worker), default=0) for attempt in attempts]
    first = [min((worker[0].step for worker in attempt.steps.values() if worker), default=0) for attempt in attempts]
    return [max(0, max(last[:number]) - start + 1) if start else 0 for number, start in enumerate(first) if number]
