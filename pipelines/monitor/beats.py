"""The content of a heartbeat: the worker's position, and the times that its clock has counted."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from pipelines.train.step_clock import OTHER


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
    """Since it started, by phase."""
    place: str = ""
    """The line of code that it executes."""
    waits: bool = False
    """Whether that line waits for other workers."""
    failed: bool = False


def describe_position(beat: WorkerBeat) -> str:
    """Describe the step and phase of a worker in words."""
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
