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

from pipelines.data.versions import storage
from pipelines.data.versions.erasures import ERASURES, JOURNAL, LAST_PHASE, PHASE, journals
from pipelines.lifecycle.erasure.erased_keys import Key

WRITE, PUBLISH, TRACKING, REMOVE = "write", "publish", "tracking", LAST_PHASE


@dataclass
class Journal:
    """One erasure's journal, which is written anew with each phase."""

    filesystem: FileSystem
    path: str
    values: dict[str, Any]

    @property
    def name(self) -> str:
        """Of the erasure, its attempt and its certificate."""
        return str(self.values["name"])

    @property
    def phase(self) -> str:
        return str(self.values[PHASE])

    def enter(self, phase: str, **values: Any) -> None:
        """Record values and the next phase."""
        self.values |= {**values, PHASE: phase}
        storage.put_file(self.filesystem, self.path, storage.seal(self.values))

    def delete(self) -> None:
        with storage.store_errors(self.path):
            self.filesystem.delete_file(self.path)

    @property
    def due(self) -> float:
        """When old files may be removed, in seconds since 1970."""
        return float(self.values["due"])


def begin(filesystem: FileSystem, folder: str, keys: Sequence[Key], grace_seconds: float, predictions: Sequence[str]) -> Journal:
    """Record an erasure before its first step."""
    name = uuid4().hex[:12]
    values = {
        "name": name,
        "keys": [dict(key) for key in keys],
        "salt": secrets.token_hex(16),
        "asked_by": f"{_user()}@{socket.gethostname()}",
        "asked_at": _now(),
        "grace_seconds": grace_seconds,
        "predictions": list(predictions),
    }
    storage.make_folder(filesystem, f"{folder}/{ERASURES}")
    journal = Journal(filesystem, f"{folder}/{ERASURES}/{name}{JOURNAL}", values)
    journal.enter(WRITE)
    return journal


def read_journals(filesystem: FileSystem, folder: str) -> Iterator[Journal]:
    """All journals of a dataset, unfinished erasures and those whose old files wait. Raises CorruptError if one is damaged."""
    for path, values in journals(filesystem, folder):
        yield Journal(filesystem, path, values)


def due_after(grace_seconds: float) -> float:
    return time.time() + grace_seconds


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "unknown"
