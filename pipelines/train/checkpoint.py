"""A run's state on storage: written beside the training, chosen only when it is whole, resharded when it is read.

    checkpoints/step-000001200-4f3a9c/
      __0_0.distcp …  .metadata    torch.distributed.checkpoint: model, optimizer and scaler; each with its SHA-256 beside it
      record.json                  written last, when all workers' files are there: without it there is no checkpoint

One that was damaged since is passed over for the one before. Reading unpickles .metadata: checkpoints are trusted input.
"""

import json
import logging
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import uuid4

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save

from pipelines.errors import TrainingError
from pipelines.train.folder import Folder
from pipelines.train.place import Place
from pipelines.train.store import reader, writer

log = logging.getLogger(__name__)

FORMAT = 1
RECORD = "record.json"


@dataclass(frozen=True)
class Record:
    """What a checkpoint holds beside tensors."""

    step: int
    """Optimizer steps done."""
    position: dict[str, int]
    """The loader's state."""
    order: dict[str, Any]
    """The order's arguments: a position means nothing in another order."""
    dataset_digest: str
    state: dict[str, Any]
    """The loop's own: best epoch, rows, curves."""
    best: bool = False
    """Whether no epoch until then had a better validation metric."""
    unsent: list[Any] = field(default_factory=list)
    """Metrics that the tracking server had not acknowledged."""
    format: int = FORMAT


@dataclass
class Saving:
    """A checkpoint that is being written."""

    name: str
    record: Record
    written: "Future[Any]"
    """Of this worker's part."""


class Checkpoints:
    """The checkpoints of one run. All workers make the same calls in the same order."""

    def __init__(self, folder: Folder, place: Place, keep: int, timeout_seconds: float = 300.0) -> None:
        self._folder, self._place, self._keep = folder, place, keep
        # Saving meets in a thread beside the training's own collectives, so it needs a group of its own.
        self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_seconds)) if dist.is_initialized() else None

    def begin(self, state: dict[str, Any], record: Record) -> Saving:
        """Copy the state and start writing it. Returns as soon as training may change it again."""
        name = self._agree(f"checkpoints/step-{record.step:09d}-{uuid4().hex[:6]}")
        with _naming(self._folder, name):
            written = async_save(state, storage_writer=writer(self._folder, name), process_group=self._group, no_dist=self._group is None)
        assert isinstance(written, Future)
        return Saving(name, record, written)

    def commit(self, saving: Saving) -> str:
        """Wait for all workers' parts, make the checkpoint count, remove what is not to be kept. Returns its path.

        Raises TrainingError, naming the path, if a part cannot be written.
        """
        with _naming(self._folder, saving.name):
            saving.written.result()
        if self._place.rank == 0:
            self._folder.put(f"{saving.name}/{RECORD}", _to_json(saving.record))
            try:
                self._prune()
            except TrainingError as error:  # the next commit prunes
                log.warning("old checkpoints stay for now: %s", error)
        return f"{self._folder.path}/{saving.name}"

    def restore(self, state: dict[str, Any]) -> tuple[str, Record] | None:
        """Fill `state` as `load` does, from the newest whole checkpoint that is as it was written. Returns its name and
        record, the same for all workers; None if there is no checkpoint.

        Raises TrainingError if the store fails, or if there are checkpoints and all are damaged.
        """
        whole, damaged = self._agree((self._whole(), self._damaged()) if self._place.rank == 0 else None)
        for name, record in whole:
            try:
                self._load(name, state)
            except CheckpointException as error:
                causes = [failure[0] for failure in error.failures.values()]
                if any(isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError) for cause in causes):
                    with _naming(self._folder, name):
                        raise
                log.warning("%s is damaged, going back to the one before: %s", name, _cause(error))
                damaged.append(name)
            else:
                if self._place.rank == 0:
                    for left in damaged:  # or they would count as the newest
                        self._folder.remove(f"{left}/{RECORD}")
                return name, record
        if damaged:
            raise TrainingError(
                f"{self._folder.path}: {', '.join(damaged)}: damaged, and no other checkpoint is left; "
                "restore one of them, or remove the folder to start anew"
            )
        return None

    def best(self) -> tuple[str, Record] | None:
        """Name and record of the newest whole checkpoint of those whose validation metric no later one has bettered; None if
        there is none. The same answer for all workers."""
        return self._agree(next((pair for pair in self._whole() if pair[1].best), None) if self._place.rank == 0 else None)

    def load(self, name: str, state: dict[str, Any]) -> None:
        """Fill `state`, which has the right names and shapes, with the checkpoint's tensors, for any number of workers."""
        with _naming(self._folder, name):
            self._load(name, state)

    def _load(self, name: str, state: dict[str, Any]) -> None:
        load(state, storage_reader=reader(self._folder, name), process_group=self._group, no_dist=self._group is None)

    def _agree(self, value: Any) -> Any:
        """Rank 0's value."""
        if self._group is None:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0, group=self._group)
        return values[0]

    def _whole(self) -> list[tuple[str, Record]]:
        """Names and records of whole checkpoints, newest first."""
        found = []
        for name, content in self._records():
            if (values := _from_json(content)) is not None:
                if values["format"] > FORMAT:
                    raise TrainingError(f"{self._folder.path}/{name} has format {values['format']}; we read up to {FORMAT}: upgrade")
                found.append((name, Record(**values)))
        return sorted(found, key=lambda pair: pair[1].step, reverse=True)

    def _damaged(self) -> list[str]:
        """Names of checkpoints whose record is not as it was written."""
        return [name for name, content in self._records() if _from_json(content) is None]

    def _records(self) -> list[tuple[str, bytes]]:
        names = sorted((f"checkpoints/{base}" for base in self._folder.names("checkpoints")), reverse=True)
        return [(name, content) for name in names if (content := self._folder.get(f"{name}/{RECORD}")) is not None]

    def _prune(self) -> None:
        """Keep the newest few and the best; remove the others, and what was torn before the newest was begun."""
        whole = self._whole()
        keep = [name for name, _ in whole[: self._keep]] + [name for name, record in whole if record.best][:1]
        for base in self._folder.names("checkpoints"):
            if f"checkpoints/{base}" not in keep:
                self._folder.remove(f"checkpoints/{base}")


def _to_json(record: Record) -> bytes:
    """The record as JSON, under the SHA-256 of the text."""
    text = json.dumps(asdict(record))
    return f"{sha256(text.encode()).hexdigest()}\n{text}".encode()


def _from_json(content: bytes) -> dict[str, Any] | None:
    """A record's values; None if the text is not the one that was written."""
    digest, _, text = content.partition(b"\n")
    return json.loads(text) if sha256(text).hexdigest().encode() == digest else None


@contextmanager
def _naming(folder: Folder, name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, CheckpointException) as error:
        raise TrainingError(
            f"{folder.path}/{name}: {_cause(error)}; the last whole checkpoint is kept: free space or mend the store, and start again"
        ) from error


def _cause(error: BaseException) -> str:
    """The first worker's own error, which torch.distributed.checkpoint wraps in a table of tracebacks."""
    if isinstance(error, CheckpointException):
        return "; ".join(f"worker {rank}: {failure[0]}" for rank, failure in error.failures.items())
    return str(error)
