"""A run's directory: the files by which driver and workers communicate, on storage that both share.

    checkpoints/            see `checkpoints`
    trail/                  see `digest_log`
    initial.safetensors     the driver: the weights to start from, where the config names some
    progress.json           rank 0, twice a second, every 5 s on a store: the progress
    stop                    the driver: save and stop
    reservation             the driver: the name under which Ray reserves machines for an elastic group
    attempt                 rank 0, when it starts: the group of workers that owns the directory
    heartbeats/<rank>.json  every worker, twenty times in a timeout: its heartbeat
    failure.json            a worker: an error that another attempt would repeat
    weights.safetensors     rank 0, at the end: the best epoch's

JSON is sealed, and safetensors have their checksum in a file beside them, so that alterations are detected.
The directory is <train.storage>/<name>-<run id>, and its tag keeps it where it is when the config's storage changes.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pyarrow.fs import FileType, LocalFileSystem

from pipelines import atomic
from pipelines.dataset import storage
from pipelines.dataset.sealed import checksum, seal, unsealed
from pipelines.errors import DatasetError, TrainingError

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")
INITIAL, WEIGHTS = "initial.safetensors", "weights.safetensors"
SUM = ".checksum"
"""Behind the name of a file that has its checksum beside it."""
PROGRESS, STOP, FAILURE, RESERVATION = "progress.json", "stop", "failure.json", "reservation"
ATTEMPT = "attempt"
"""Names the group of workers that the run's directory belongs to: the one that started last."""
LOOK_SECONDS = {True: 0.5, False: 5.0}
"""Between looks at the directory, on a local disk and on a store that is paid by the request."""
_PAUSES_SECONDS = (1.0, 2.0, 4.0, 8.0)
"""Between attempts to write what must be written."""


class RunDirectory:
    """Small files in one directory of a file system, each written whole or not at all.

    Raises TrainingError, naming the path, wherever the store fails.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        with _errors_name(uri):
            self.filesystem, self.path = storage.locate(uri)

    @property
    def is_local(self) -> bool:
        return isinstance(self.filesystem, LocalFileSystem)

    def put(self, name: str, content: bytes, durable: bool = True) -> None:
        """Write a file, in place of an older one; on a disk `durable` waits until it would survive a loss of power."""
        path = f"{self.path}/{name}"
        with _errors_name(path):
            patiently(lambda: self._write(path, content, durable)) if durable else self._write(path, content, durable)

    def get(self, name: str) -> bytes | None:
        """A file's bytes, None where there is none."""
        path = f"{self.path}/{name}"
        with _errors_name(path):
            return storage.read(self.filesystem, path)

    def put_summed(self, name: str, content: bytes) -> None:
        """Write a file beside its checksum, for `get_summed`."""
        self.put(f"{name}{SUM}", checksum(content).encode())
        self.put(name, content)

    def get_summed(self, name: str) -> bytes | None:
        """A file's bytes, None where there is none. Raises TrainingError if they are not as they were put."""
        content = self.get(name)
        if content is not None and self.get(f"{name}{SUM}") != checksum(content).encode():
            raise TrainingError(f"{self.path}/{name} is not as it was written; remove it, and give the same command again")
        return content

    def put_json(self, name: str, values: dict[str, Any], durable: bool = True) -> None:
        self.put(name, seal(values), durable)

    def get_json(self, name: str) -> dict[str, Any] | None:
        """A file's values, None where there is none. Raises TrainingError if they are not as they were put."""
        content = self.get(name)
        values = None if content is None else unsealed(content)
        if content is not None and values is None:
            raise TrainingError(f"{self.path}/{name} is not as it was written; restore it, or remove it")
        return values

    def glance(self, name: str) -> dict[str, Any] | None:
        """A file's values, None where there is none or it is damaged: for what is looked at and soon written again."""
        content = self.get(name)
        return None if content is None else unsealed(content)

    def has(self, name: str) -> bool:
        return self._kind(name) != FileType.NotFound

    def remove(self, name: str) -> None:
        """Remove a file or a folder, if it is there."""
        path, kind = f"{self.path}/{name}", self._kind(name)
        with _errors_name(path):
            if kind == FileType.Directory:
                storage.remove_folder(self.filesystem, path)
            elif kind != FileType.NotFound:
                self.filesystem.delete_file(path)

    def names(self, directory: str) -> list[str]:
        """Names of what lies in a folder below this one."""
        path = f"{self.path}/{directory}"
        with _errors_name(path):
            return [entry.base_name for entry in storage.entries(self.filesystem, path)]

    def _write(self, path: str, content: bytes, durable: bool) -> None:
        if self.is_local:
            atomic.replace(path, content, durable=durable)
        else:
            with self.filesystem.open_output_stream(path) as stream:
                stream.write(content)

    def _kind(self, name: str) -> FileType:
        path = f"{self.path}/{name}"
        with _errors_name(path):
            return self.filesystem.get_file_info(path).type


def patiently(write: Callable[[], Answer]) -> Answer:
    """What `write` returns; it is called again after pauses while the store fails, through an outage of some 15 s."""
    for pause in _PAUSES_SECONDS:
        try:
            return write()
        except OSError as error:
            log.warning("the store failed, trying again in %.0f s: %s", pause, error)
            time.sleep(pause)
    return write()


@contextmanager
def _errors_name(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, DatasetError) as error:
        text = str(error) if path in str(error) else f"{path}: {error}"
        raise TrainingError(f"{text}; free space or mend the store, or set train.storage to another place") from error
