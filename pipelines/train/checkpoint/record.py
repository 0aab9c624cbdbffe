"""The record of a checkpoint, which holds everything but tensors, and its file format."""

from dataclasses import asdict, dataclass, field
from typing import Any

from pipelines.data.versions.checksummed_json import seal, unseal_or_none
from pipelines.train.checkpoint.run_directory import RunDirectory

FORMAT = 2
RECORD = "record.json"


@dataclass(frozen=True)
class Record:
    """The contents of a checkpoint besides tensors."""

    step: int
    """Optimizer steps done."""
    position: dict[str, int]
    """The loader's state."""
    order: dict[str, Any]
    """The arguments of the order: a position is valid only in the same order."""
    dataset_digest: str
    state: dict[str, Any]
    """The loop's state: best epoch, rows, curves."""
    best: bool = False
    """Whether no earlier epoch had a better validation metric."""
    unsent: list[Any] = field(default_factory=list)
    """Metrics that the tracking server had not acknowledged."""
    losses: list[float] = field(default_factory=list)
    """Loss sums of the steps since the last save."""
    digests: dict[str, str] = field(default_factory=dict)
    """The digest of every tensor by name, added when the checkpoint is committed."""
    format: int = FORMAT


def to_json(record: Record) -> bytes:
    return seal(asdict(record))


def from_json(content: bytes) -> dict[str, Any] | None:
    """A record's values; None if the content is damaged."""
    return unseal_or_none(content)


def newest_step(directory: RunDirectory) -> int | None:
    """The last step of the newest complete checkpoint; None if there is none."""
    contents = (directory.get(f"checkpoints/{base}/{RECORD}") for base in directory.names("checkpoints"))
    records = [values for content in contents if content is not None and (values := from_json(content)) is not None]
    return max((int(values["step"]) for values in records), default=None)
