"""A run's directory: the files by which driver and workers communicate, on storage that both share.

    file                    written by    content
    checkpoints/            all workers   see `checkpoints`
    trail/                  rank 0        see `checkpoint_record`
    initial.safetensors     the driver    the initial weights, if the config names some
    progress.json           rank 0        the progress, twice a second; every 5 s on an object store
    stop                    the driver    asks the workers to save and stop
    reservation             the driver    the name under which Ray reserves machines for an elastic group
    attempt                 rank 0        the group of workers that owns the directory, since its start
    attempts.json           rank 0        when each group of workers began and ended to train, at which steps and with how many workers
    evaluation-<split>.zip  rank 0        what the best epoch's evaluation kept for figures
    heartbeats/<rank>.json  each worker   its heartbeat, twenty times per timeout or every five seconds
    profile/                each worker   traces and tables of torch's profiler, if the config asks for them
    hung/<rank>.json        each worker   what it waited for when a collective operation timed out
    deaths.json             Ray           the workers that died last, and when
    failure.json            a worker      an error that another attempt would repeat
    weights.safetensors     rank 0        the weights of the best epoch, at the end

JSON files contain a checksum, and safetensors files have one in a file beside them, so that damage is detected.
The directory is <train.storage>/<name>-<run id>. The MLflow run has it as a tag, so that the run stays there if train.storage changes.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pyarrow.fs import FileType, LocalFileSystem, copy_files

from pipelines.data.versions import storage
from pipelines.data.versions.storage import checksum, seal, unseal_or_none
from pipelines.errors import DatasetError, TrainingError
from pipelines.runtime import atomic

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")
INITIAL, WEIGHTS = "initial.safetensors", "weights.safetensors"
SUM = ".checksum"
"""Suffix of a file that contains the checksum of the file beside it."""
PROGRESS, STOP, FAILURE, RESERVATION = "progress.json", "stop", "failure.json", "reservation"
DEATHS = "deaths.json"
ATTEMPT = "attempt"
"""Identifies the group of workers that owns the directory: the one that started last."""
ATTEMPTS = "attempts.json"
"""`attempts`: for each group of workers the time, the step that it began with and the number of workers; and, unless it died, the time
at which it ended and the steps until then."""
LOOK_SECONDS = {True: 0.5, False: 5.0}
"""Time between polls of the directory, on a local disk (True) and on an object store, which charges for requests."""
_PAUSES_SECONDS = (1.0, 2.0, 4.0, 8.0)
"""Pauses between attempts to write."""


class RunDirectory:
    """Small files in one directory of a file system, each written atomically.

    Every method raises TrainingError, naming the path, if the store fails.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        try:
            self.filesystem, self.path = storage.locate(uri)
        except DatasetError as error:  # which says what to give instead
            raise TrainingError(str(error)) from error

    @property
    def is_local(self) -> bool:
        return isinstance(self.filesystem, LocalFileSystem)

    def put(self, name: str, content: bytes, durable: bool = True) -> None:
        """Write a file, replacing an older one. If `durable`, retry while the store fails, and sync the file on a local disk."""
        path = f"{self.path}/{name}"

        def write() -> None:
            if self.is_local:
                atomic.write_file(path, content, durable=durable)
            else:
                with self.filesystem.open_output_stream(path) as stream:
                    stream.write(content)

        with _name_path_in_errors(path):
            retry_write(write) if durable else write()

    def get(self, name: str) -> bytes | None:
        """A file's bytes; None if there is none."""
        path = f"{self.path}/{name}"
        with _name_path_in_errors(path):
            return storage.read(self.filesystem, path)

    def put_with_checksum(self, name: str, content: bytes) -> None:
        """Write a file, and its checksum beside it, for `get_with_checksum`."""
        self.put(f"{name}{SUM}", checksum(content).encode())
        self.put(name, content)

    def get_with_checksum(self, name: str) -> bytes | None:
        """A file's bytes; None if there is none. Raises TrainingError if they do not match the checksum."""
        content = self.get(name)
        if content is not None and self.get(f"{name}{SUM}") != checksum(content).encode():
            raise TrainingError(f"{self.path}/{name} is damaged; remove it, and run the same command again")
        return content

    def put_json(self, name: str, values: dict[str, Any], durable: bool = True) -> None:
        self.put(name, seal(values), durable)

    def get_json(self, name: str) -> dict[str, Any] | None:
        """A file's values; None if there is none. Raises TrainingError if the file is damaged."""
        content = self.get(name)
        values = None if content is None else unseal_or_none(content)
        if content is not None and values is None:
            raise TrainingError(f"{self.path}/{name} is damaged; restore it, or remove it")
        return values

    def glance(self, name: str) -> dict[str, Any] | None:
        """A file's values; None if there is none or it is damaged. For files that are rewritten often."""
        content = self.get(name)
        return None if content is None else unseal_or_none(content)

    def copy(self, name: str, target: "RunDirectory") -> None:
        """Copy a file, which may be large, to the same place in another directory, atomically, and sync it on a local disk."""
        path, target_path = f"{self.path}/{name}", f"{target.path}/{name}"

        def copy_to(copy_path: str) -> None:
            copy_files(path, copy_path, source_filesystem=self.filesystem, destination_filesystem=target.filesystem)

        def write() -> None:
            target.filesystem.create_dir(target_path.rpartition("/")[0], recursive=True)
            if target.is_local:
                atomic.write_file_by(target_path, copy_to)
            else:
                copy_to(target_path)

        with _name_path_in_errors(path):
            if self._kind(name) == FileType.NotFound:  # which no retry brings back
                raise FileNotFoundError(f"{path} is gone")
            retry_write(write)

    def has(self, name: str) -> bool:
        return self._kind(name) != FileType.NotFound

    def remove(self, name: str) -> None:
        """Remove a file or a folder, if it is there."""
        path, kind = f"{self.path}/{name}", self._kind(name)
        with _name_path_in_errors(path):
            if kind == FileType.Directory:
                storage.remove_folder(self.filesystem, path)
            elif kind != FileType.NotFound:
                self.filesystem.delete_file(path)

    def names(self, directory: str) -> list[str]:
        """Names of the entries of a folder in this directory."""
        path = f"{self.path}/{directory}"
        with _name_path_in_errors(path):
            return [entry.base_name for entry in storage.entries(self.filesystem, path)]

    def _kind(self, name: str) -> FileType:
        path = f"{self.path}/{name}"
        with _name_path_in_errors(path):
            return self.filesystem.get_file_info(path).type


def retry_write(write: Callable[[], Answer]) -> Answer:
    """Return the result of `write`; call it again after pauses while the store fails, for about 15 s."""
    for pause in _PAUSES_SECONDS:
        try:
            return write()
        except OSError as error:
            log.warning("the store failed, retrying in %.0f s: %s", pause, error)
            time.sleep(pause)
    return write()


@contextmanager
def _name_path_in_errors(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, DatasetError) as error:
        fault = error.__cause__ if isinstance(error.__cause__, OSError) else error  # without the remedy of a dataset's store
        text = str(fault) if path in str(fault) else f"{path}: {fault}"
        raise TrainingError(f"{text}; free space or repair the store, or move the run's folder to another train.storage") from error
