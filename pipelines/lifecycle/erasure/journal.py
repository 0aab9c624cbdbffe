"""The journal of an erasure: what is to be done, and how far it has come. Each step is recorded before it is taken, and can be taken again.

| phase | what an interruption leaves | what the next run does |
|---|---|---|
| write | some new files, which no manifest names | removes them, and begins anew |
| publish | some versions with new manifests, all new files | makes the other manifests |
| tracking | new manifests; some artifacts and outputs without the rows | looks through all of them again |
| remove | nothing but old files, which wait for the end of the grace time | removes those that are still there |

It holds the keys until the third phase is over, and no longer.
"""

import getpass
import secrets
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from pyarrow.fs import FileSystem

from pipelines.config.section import Section
from pipelines.data.versions import storage
from pipelines.data.versions.erasures import ERASURES, JOURNAL, LAST_PHASE, PHASE, journals
from pipelines.lifecycle.erasure.erased_keys import Key

WRITE, PUBLISH, TRACKING, REMOVE = "write", "publish", "tracking", LAST_PHASE


class ErasedVersion(Section):
    """A version's part of an erasure."""

    quarantined: int
    """Refused rows that were erased."""
    positions: dict[str, list[int]] = {}
    """Numbers of the erased rows in each split, until MLflow is without them."""
    rows: dict[str, int] = {}
    """Rows that were erased, by split; this and what follows are known once the version is published."""
    digest_before: str = ""
    digest_after: str = ""
    columns_with_texts: list[str] = []
    """Columns whose encoders keep texts of rows."""


class ErasureRecord(Section):
    """The values of a journal. Later phases fill in what has a default."""

    name: str
    """Of the erasure, its attempt and its certificate."""
    phase: str
    keys: list[dict[str, str]]
    """Until MLflow is without them; empty then."""
    key_columns: list[str]
    salt: str
    """Of the hashes of the keys."""
    asked_by: str
    asked_at: str
    grace_seconds: float
    predictions: list[str]
    """Outputs of predictions to erase from."""

    records: list[dict[str, Any]] = []
    """The keys as records of a quarantine have them; as long as `keys`."""
    key_hashes: list[str] = []
    versions: dict[str, ErasedVersion] = {}
    unsearchable: dict[str, str] = {}
    """Why other versions could not be searched."""
    replaced: dict[str, dict[str, Any]] = {}
    """The values of a `ReplacedPart` for each part that was written again, until all versions are published."""
    removed: dict[str, str] = {}
    """Checksums of old files, by their paths relative to the dataset's folder."""
    written: dict[str, str] = {}
    """The same of new files."""
    tracked: dict[str, Any] | None = None
    """The values of the `TrackedErasure`, as they were found before any change."""
    outputs: list[dict[str, Any]] | None = None
    """The values of a `PredictionErasure` for each output, found likewise."""
    due: float = 0.0
    """When old files may be removed, in seconds since 1970."""


@dataclass
class Journal:
    """One erasure's journal, which is written anew with each phase."""

    filesystem: FileSystem
    path: str
    record: ErasureRecord

    def enter(self, phase: str, **values: Any) -> None:
        """Record values and the next phase."""
        self.record = self.record.model_copy(update={**values, PHASE: phase})
        storage.put_file(self.filesystem, self.path, storage.seal(self.record.model_dump(mode="json")))

    def delete(self) -> None:
        with storage.store_errors(self.path):
            self.filesystem.delete_file(self.path)


def begin(filesystem: FileSystem, folder: str, keys: Sequence[Key], grace_seconds: float, predictions: Sequence[str]) -> Journal:
    """Record an erasure before its first step. There is a key."""
    name = uuid4().hex[:12]
    record = ErasureRecord(
        name=name,
        phase=WRITE,
        keys=[dict(key) for key in keys],
        key_columns=list(keys[0]),
        salt=secrets.token_hex(16),
        asked_by=f"{_user()}@{socket.gethostname()}",
        asked_at=datetime.now(UTC).isoformat(timespec="seconds"),
        grace_seconds=grace_seconds,
        predictions=list(predictions),
    )
    storage.make_folder(filesystem, f"{folder}/{ERASURES}")
    journal = Journal(filesystem, f"{folder}/{ERASURES}/{name}{JOURNAL}", record)
    journal.enter(WRITE)
    return journal


def read_journals(filesystem: FileSystem, folder: str) -> Iterator[Journal]:
    """All journals of a dataset, unfinished erasures and those whose old files wait. Raises CorruptError if one is damaged."""
    for path, values in journals(filesystem, folder):
        yield Journal(filesystem, path, ErasureRecord.model_validate(values))


def due_after(grace_seconds: float) -> float:
    return time.time() + grace_seconds


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "unknown"
