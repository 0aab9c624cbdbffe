"""A heartbeat's content: where a worker is, and what its clock has counted."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True)
class Beat:
    """What a worker says of itself. Every entry has a default, since a beat may be of another version."""

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


OTHER = "other"
"""The phase of what belongs to no step."""


def where(beat: Beat) -> str:
    """Where a worker is, in words."""
    if not beat.steps:
        return "starting"
    number = f"step {beat.step + 1:,}"
    return f"between two steps, after {number}" if beat.phase == OTHER else f"in {beat.phase} of {number}"


def beat_of(values: Mapping[str, Any]) -> Beat:
    return Beat(**{known.name: values[known.name] for known in fields(Beat) if known.name in values})


def of_one_group(beats: Mapping[int, Beat]) -> dict[int, Beat]:
    """Those of the group of workers that is alive, by rank: a smaller group leaves the beats of a larger one before it behind."""
    newest = max(beats.values(), key=lambda beat: beat.time, default=Beat())
    return {rank: beat for rank, beat in sorted(beats.items()) if rank < newest.world_size == beat.world_size}
