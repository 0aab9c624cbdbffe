"""Connects torch.distributed.checkpoint to storage: retries while the store fails, and verifies a SHA-256 of every file.

The SHA-256 is computed during writing and kept in a file beside it. torch itself loads a file with a flipped bit silently.
"""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import file_digest, sha256
from typing import Any

from pyarrow.fs import FileSystem, FileType
from torch.distributed.checkpoint.filesystem import FileSystem as Disk
from torch.distributed.checkpoint.filesystem import FileSystemBase, FileSystemReader, FileSystemWriter

from pipelines.train.checkpoint.run_directory import RunDirectory, retry_write

SUM = ".sha256"


class DamagedError(Exception):
    """A file does not have the SHA-256 that it was written with."""


class DcpWriter(FileSystemWriter):
    """Writes a checkpoint into a folder, and syncs its files on a local disk. Retries each part of a save: a retry overwrites the files
    of the failed attempt."""

    def __init__(self, directory: RunDirectory, name: str) -> None:
        path = f"{directory.path}/{name}"
        super().__init__(path, sync_files=directory.is_local)
        self.fs: FileSystemBase = _files(directory)  # type: ignore[assignment]
        self.path = self.fs.init_path(path)
        self.staged: dict[str, Any] = {}
        """The copy on the CPU, from which the files are written."""

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        self.staged = super().stage(state_dict)
        return self.staged

    def prepare_local_plan(self, *arguments: Any, **options: Any) -> Any:
        return retry_write(lambda: super(DcpWriter, self).prepare_local_plan(*arguments, **options))

    def write_data(self, *arguments: Any, **options: Any) -> Any:
        return retry_write(lambda: super(DcpWriter, self).write_data(*arguments, **options))

    def finish(self, *arguments: Any, **options: Any) -> None:
        retry_write(lambda: super(DcpWriter, self).finish(*arguments, **options))


class DcpReader(FileSystemReader):
    """Reads a checkpoint from a folder. Raises DamagedError, through torch's CheckpointException."""

    def __init__(self, directory: RunDirectory, name: str) -> None:
        path = f"{directory.path}/{name}"
        super().__init__(path)
        self.fs: FileSystemBase = _files(directory)  # type: ignore[assignment]
        self.path = self.fs.init_path(path)


class _ChecksumStream:
    """A stream that computes the SHA-256 of what is written to it."""

    def __init__(self, stream: Any) -> None:
        self._stream, self.sha256 = stream, sha256()

    def write(self, content: Any) -> int:
        self.sha256.update(content)
        return self._stream.write(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Checksums(FileSystemBase):
    """Computes a checksum of every file that the file system behind it writes, and verifies it before reading."""

    @contextmanager
    def create_stream(self, path: str | os.PathLike, mode: str) -> Iterator[io.IOBase]:
        inner = super().create_stream  # type: ignore[safe-super]  # of the class behind
        checksum_path = self.init_path(f"{path}{SUM}")
        with inner(path, mode) as stream:
            if "w" in mode:
                checksum_stream: Any = _ChecksumStream(stream)
                yield checksum_stream
            else:
                with inner(checksum_path, "rb") as checksum_file:
                    expected = checksum_file.read().decode(errors="replace")
                actual = file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]
                if actual != expected:
                    raise DamagedError(f"{os.path.basename(path)} has SHA-256 {actual[:12]}, but had {expected[:12]} when it was written")
                stream.seek(0)
                yield stream
        if "w" in mode:
            with inner(checksum_path, "wb") as stream:
                stream.write(checksum_stream.sha256.hexdigest().encode())

    def rename(self, path: str | os.PathLike, new_path: str | os.PathLike) -> None:
        super().rename(self.init_path(f"{path}{SUM}"), self.init_path(f"{new_path}{SUM}"))  # type: ignore[safe-super]
        super().rename(path, new_path)  # type: ignore[safe-super]

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        return True


class _ArrowFileSystem(FileSystemBase):
    """Adapts an Arrow file system to the interface of torch's checkpoint storage."""

    def __init__(self, filesystem: FileSystem) -> None:
        self._filesystem = filesystem

    @contextmanager
    def create_stream(self, path: str | os.PathLike, mode: str) -> Iterator[io.IOBase]:
        open_stream = self._filesystem.open_output_stream if "w" in mode else self._filesystem.open_input_file
        with open_stream(os.fspath(path)) as stream:
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


class _LocalFiles(_Checksums, Disk):
    """Files of a local disk, with checksums."""


class _ArrowFiles(_Checksums, _ArrowFileSystem):
    """Files of any Arrow file system, with checksums."""


def _files(directory: RunDirectory) -> FileSystemBase:
    return _LocalFiles() if directory.is_local else _ArrowFiles(directory.filesystem)
