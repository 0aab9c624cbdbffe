"""Files that appear whole or not at all: written beside their place, on the disk, then moved into it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import uuid4


def replace(path: str | os.PathLike[str], content: bytes, *, mode: int = 0o666, durable: bool = True) -> None:
    """Write a file, in place of an older one. `durable` waits until it would survive a loss of power."""
    with _draft(path, content, mode, durable) as draft:
        os.replace(draft, path)


def create(path: str | os.PathLike[str], content: bytes, *, mode: int = 0o666) -> bool:
    """Write a file. Returns False, and changes nothing, if there is one: a hard link decides between racing writers."""
    with _draft(path, content, mode, durable=True) as draft:
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        return True


@contextmanager
def _draft(path: str | os.PathLike[str], content: bytes, mode: int, durable: bool) -> Iterator[str]:
    """A file with this content beside `path`, of which nothing is left afterwards. Its mode is less what the umask takes away."""
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
