"""A run's folder: how the driver and the workers tell each other what they must know, on storage both see.

<train.storage>/<name>-<run id>/
  checkpoints/…       see `checkpoint`
  progress.json       rank 0, every second: how far it is
  stop                the driver: save and leave
  weights.safetensors rank 0, at the end: the best epoch's
  outcome.json        rank 0, after the weights: what came of it
"""

import json
import os
from contextlib import suppress
from typing import Any
from uuid import uuid4

from pyarrow.fs import FileType, LocalFileSystem

from pipelines.dataset import storage
from pipelines.errors import DatasetError, TrainingError

STOP, PROGRESS, WEIGHTS, OUTCOME = "stop", "progress.json", "weights.safetensors", "outcome.json"


class Folder:
    """Small files in one folder of a file system, each written whole or not at all. Picklable."""

    def __init__(self, uri: str) -> None:
        """Raises TrainingError if no file system knows the URI."""
        self.uri = uri
        try:
            self.filesystem, self.path = storage.locate(uri)
        except DatasetError as error:
            raise TrainingError(f"train.storage: {error}") from error

    @property
    def is_local(self) -> bool:
        return isinstance(self.filesystem, LocalFileSystem)

    def put(self, name: str, content: bytes) -> None:
        """Write a file, in place of an older one. Raises TrainingError if the store fails."""
        path = f"{self.path}/{name}"
        try:
            if self.is_local:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                draft = f"{path}.{uuid4().hex}"
                try:
                    with open(draft, "wb") as stream:
                        stream.write(content)
                        stream.flush()
                        os.fsync(stream.fileno())
                    os.replace(draft, path)
                finally:
                    with suppress(FileNotFoundError):
                        os.unlink(draft)
            else:
                with self.filesystem.open_output_stream(path) as stream:
                    stream.write(content)
        except OSError as error:
            raise TrainingError(f"{path} cannot be written: {error}; free space or set train.storage to another place") from error

    def get(self, name: str) -> bytes | None:
        """A file's bytes, None where there is none. Raises TrainingError if the store fails."""
        try:
            return storage.read(self.filesystem, f"{self.path}/{name}")
        except DatasetError as error:
            raise TrainingError(str(error)) from error

    def put_json(self, name: str, values: dict[str, Any]) -> None:
        self.put(name, json.dumps(values).encode())

    def get_json(self, name: str) -> dict[str, Any] | None:
        content = self.get(name)
        return None if content is None else json.loads(content)

    def has(self, name: str) -> bool:
        return self.filesystem.get_file_info(f"{self.path}/{name}").type != FileType.NotFound

    def remove(self, name: str) -> None:
        """Remove a file or a folder, if it is there."""
        path = f"{self.path}/{name}"
        kind = self.filesystem.get_file_info(path).type
        if kind == FileType.Directory:
            storage.remove_folder(self.filesystem, path)
        elif kind != FileType.NotFound:
            self.filesystem.delete_file(path)

    def names(self, folder: str) -> list[str]:
        """Names of what lies in a folder below this one."""
        return [entry.base_name for entry in storage.entries(self.filesystem, f"{self.path}/{folder}")]
