"""Writes files atomically: to a draft beside the target, which is then moved into place."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from uuid import uuid4

_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)
"""What file systems without hard links answer: exFAT the first, file systems of users and of networks the others."""


def write_file(path: str | os.PathLike[str], content: bytes, *, mode: int = 0o666, durable: bool = True) -> None:
    """Write a file, replacing an older one. `durable` syncs it, so that it survives a power failure."""
    with _draft(path, content, mode, durable) as draft:
        os.replace(draft, path)


def write_file_by(path: str | os.PathLike[str], write: Callable[[str], object]) -> None:
    """Have `write` write a file, replacing an older one: it is called with the path of the draft. The file survives a power failure."""
    draft = f"{os.fspath(path)}.{uuid4().hex}"
    try:
        write(draft)
        with open(draft, "rb") as stream:
            os.fsync(stream.fileno())
        os.replace(draft, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)


def create_file(path: str | os.PathLike[str], content: bytes, *, mode: int = 0o666) -> bool:
    """Write a file. Returns False, and changes nothing, if it exists: a hard link decides between concurrent writers."""
    with _draft(path, content, mode, durable=True) as draft:
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        return True


def has_hard_links(folder: str | os.PathLike[str]) -> bool:
    """Whether the file system of a folder has hard links, which `create_file` needs."""
    with TemporaryDirectory(prefix=".probe-", dir=folder) as probe, _draft(f"{probe}/a", b"", 0o600, durable=False) as draft:
        try:
            os.link(draft, f"{probe}/b")
        except OSError as error:
            if error.errno in _NO_LINKS:
                return False
            raise
        return True


@contextmanager
def _draft(path: str | os.PathLike[str], content: bytes, mode: int, durable: bool) -> Iterator[str]:
    """A draft with this content beside `path`, which is removed afterwards. The umask applies to its mode."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    draft = f"{os.fspath(path)}.{uuid4().hex}"
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
            stream.write(content)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        yield draft
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)
