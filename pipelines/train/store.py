"""How torch.distributed.checkpoint reaches the file systems that pyarrow knows."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager

from pyarrow.fs import FileSystem, FileType
from torch.distributed.checkpoint.filesystem import FileSystemBase, FileSystemReader, FileSystemWriter

from pipelines.train.folder import Folder


def writer(folder: Folder, name: str) -> FileSystemWriter:
    """Writes a checkpoint into the folder `name`. On a local disk torch's own writer, which syncs its files."""
    path = f"{folder.path}/{name}"
    return FileSystemWriter(path) if folder.is_local else _Writer(folder.filesystem, path)


def reader(folder: Folder, name: str) -> FileSystemReader:
    path = f"{folder.path}/{name}"
    return FileSystemReader(path) if folder.is_local else _Reader(folder.filesystem, path)


class _Writer(FileSystemWriter):
    def __init__(self, filesystem: FileSystem, path: str) -> None:
        super().__init__(path, sync_files=False)
        self.fs: FileSystemBase = _Arrow(filesystem)  # type: ignore[assignment]
        self.path = path


class _Reader(FileSystemReader):
    def __init__(self, filesystem: FileSystem, path: str) -> None:
        super().__init__(path)
        self.fs: FileSystemBase = _Arrow(filesystem)  # type: ignore[assignment]
        self.path = path


class _Arrow(FileSystemBase):
    """An Arrow file system with the calls that torch's checkpoint files are made with."""

    def __init__(self, filesystem: FileSystem) -> None:
        self._filesystem = filesystem

    @contextmanager
    def create_stream(self, path: str | os.PathLike, mode: str) -> Iterator[io.IOBase]:
        opened = self._filesystem.open_output_stream if "w" in mode else self._filesystem.open_input_file
        with opened(os.fspath(path)) as stream:
            yield stream

    def concat_path(self, path: str | os.PathLike, suffix: str) -> str:
        return f"{os.fspath(path)}/{suffix}"

    def init_path(self, path: str | os.PathLike) -> str:
        return os.fspath(path)

    def mkdir(self, path: str | os.PathLike) -> None:
        self._filesystem.create_dir(os.fspath(path), recursive=True)

    def rename(self, path: str | os.PathLike, new_path: str | os.PathLike) -> None:
        self._filesystem.move(os.fspath(path), os.fspath(new_path))

    def exists(self, path: str | os.PathLike) -> bool:
        return bool(self._filesystem.get_file_info(os.fspath(path)).type != FileType.NotFound)

    def rm_file(self, path: str | os.PathLike) -> None:
        self._filesystem.delete_file(os.fspath(path))

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        return True
