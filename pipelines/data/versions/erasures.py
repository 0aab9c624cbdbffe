"""The facts of erasures that ETL and other jobs need: where they stand, which are unfinished, and that nobody writes beside one.

A dataset's folder has a folder `erasures`, with a certificate for each erasure, <name>.json, and its journal as long as there is something
left to do, <name>.journal. ETL holds the lock of the dataset's folder together with others, an erasure holds it alone,
as a cleaning does. Object stores have no such lock: there the journal keeps an ETL from starting, and ETL looks at its parent again before
it commits.
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyarrow.fs import FileSystem, LocalFileSystem

from pipelines.data.versions import storage
from pipelines.errors import CorruptError, DatasetError

ERASURES, JOURNAL, CERTIFICATE = "erasures", ".journal", ".json"
"""The folder, and the endings of the files in it."""
PHASE, LAST_PHASE = "phase", "remove"
"""A journal's entry that says what is being done, and its last value: all is erased, and only old files wait for their removal."""


def has_erasures(filesystem: FileSystem, folder: str) -> bool:
    """Whether rows were erased from a dataset's versions."""
    return bool(storage.entries(filesystem, f"{folder}/{ERASURES}"))


def journals(filesystem: FileSystem, folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Path and values of each journal in a dataset's folder, by name. Raises CorruptError if one is damaged."""
    for entry in storage.entries(filesystem, f"{folder}/{ERASURES}"):
        if entry.is_file and entry.path.endswith(JOURNAL):
            yield entry.path, read_sealed(filesystem, entry.path)


def read_sealed(filesystem: FileSystem, path: str) -> dict[str, Any]:
    """The values of a journal or a certificate. Raises DatasetError if there is no such file, CorruptError if it is damaged."""
    content = storage.read(filesystem, path)
    if content is None:
        raise DatasetError(f"{path} does not exist; give one of the files in the folder {ERASURES} of the dataset")
    values = storage.unseal_or_none(content)
    if values is None:
        raise CorruptError(f"{path} is not as it was written; restore it from a copy")
    return values


@contextmanager
def dataset_lock(path: str, alone: bool = False) -> Iterator[bool]:
    """Hold the lock of a dataset's folder: `alone` for a job that removes files, else together with others. Yields whether its file system
    has locks. Raises DatasetError if a job that removes files has it, or if any other job has it and it is asked for alone."""
    filesystem, folder = storage.locate(path)
    descriptor = _open_folder(folder) if isinstance(filesystem, LocalFileSystem) else None
    try:
        yield descriptor is not None and _lock(descriptor, folder, alone)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def refuse_unfinished_erasures(filesystem: FileSystem, folder: str) -> None:
    """Raise DatasetError if an erasure was interrupted before versions and MLflow were without the rows."""
    for path, values in journals(filesystem, folder):
        if values.get(PHASE) != LAST_PHASE:
            raise DatasetError(
                f"{path}: an erasure of rows of this dataset is unfinished; run `lockstep erase CONF.yaml` first, which goes on"
            )


def _open_folder(folder: str) -> int | None:
    """A descriptor of a folder; None if there is none yet, in which there is nothing to erase."""
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _lock(descriptor: int, folder: str, alone: bool) -> bool:
    """Take the lock. Returns False on a file system without locks of folders, such as NFS."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        jobs = "an ETL, an erasure or a cleaning" if alone else "an erasure or a cleaning"
        raise DatasetError(f"{folder} is in use by {jobs}; wait until that has ended, and run the same command again") from error
    return True
