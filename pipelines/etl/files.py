"""The files of a raw table: found, opened, and cut into byte ranges, on any file system pyarrow knows.

A path is a file, a folder (its files at any depth), a glob (`*`, `?`, `[a-z]`, `{a,b}`), or a URI of one of these, or
package://name/file for a file inside an installed Python package. Names that start with `_` or `.` are hidden, as in
Spark.
"""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, LocalFileSystem

from pipelines.errors import SourceError

PACKAGE = "package://"
BLOCK_BYTES = 4 * 2**20
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".br")


@dataclass(frozen=True)
class File:
    """A file when it was found. `open_file` opens it, on any machine."""

    path: str
    """Absolute, or a URI."""
    bytes: int
    modified: str
    """Time of the last change as its file system knows it; empty where it does not."""

    @property
    def splits(self) -> bool:
        """Whether reading may start in the middle."""
        return not self.path.startswith(PACKAGE) and not self.path.endswith(COMPRESSED)


@dataclass(frozen=True)
class Range:
    """Bytes [start, stop) of a file: whatever lines begin there."""

    file: File
    start: int
    stop: int


def find(path: str | tuple[str, ...]) -> list[File]:
    """All files of a table's path or paths, sorted, each once. Raises SourceError if one of the paths leads to none."""
    found = {file.path: file for one in ([path] if isinstance(path, str) else path) for file in _find(one)}
    return [found[name] for name in sorted(found)]


def ranges(found: list[File], range_bytes: int, split: bool = True) -> list[list[Range]]:
    """The files, cut where that is possible if `split`, and collected so that each list has `range_bytes`, about."""
    lists: list[list[Range]] = [[]]
    room = range_bytes
    for file in found:
        step = range_bytes if split and file.splits else max(file.bytes, 1)
        for start in range(0, max(file.bytes, 1), step):
            piece = Range(file, start, min(start + step, file.bytes))
            if lists[-1] and piece.stop - piece.start > room:
                lists.append([])
                room = range_bytes
            lists[-1].append(piece)
            room -= piece.stop - piece.start
    return lists


@contextmanager
def naming(path: str) -> Iterator[None]:
    """A failing file system's OSError as a SourceError that names the path."""
    try:
        yield
    except (OSError, pa.ArrowInvalid) as error:
        raise SourceError(f"{path} cannot be read: {error}") from error


def open_file(path: str) -> AbstractContextManager[pa.NativeFile]:
    """The file's bytes as they lie, for reading anywhere in it."""
    if path.startswith(PACKAGE):
        return _open_resource(path)
    filesystem, inner = locate(path)
    return filesystem.open_input_file(inner)


@contextmanager
def content(path: str) -> Iterator[pa.NativeFile]:
    """The file's content from its beginning, decompressed by its ending. Raises SourceError if it cannot be read."""
    with naming(path), open_file(path) as raw:
        yield pa.CompressedInputStream(raw, pa.Codec.detect(path).name) if path.endswith(COMPRESSED) else raw


def blocks(path: str, block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    """The file's content, in pieces. Raises SourceError if it breaks off or cannot be read."""
    with content(path) as stream:
        while block := stream.read(block_bytes):
            yield block


def lines_of(piece: Range) -> Iterator[bytes]:
    """The content of all lines that begin in a range; of the whole file if it does not split."""
    if not piece.file.splits:
        yield from blocks(piece.file.path)
        return
    with naming(piece.file.path), open_file(piece.file.path) as stream:
        position, end = _line_start(stream, piece.start), _line_start(stream, piece.stop)
        stream.seek(position)
        while block := stream.read(min(BLOCK_BYTES, end - position)):
            position += len(block)
            yield block


def _line_start(stream: pa.NativeFile, offset: int) -> int:
    """Where the first line begins that does not begin before `offset`."""
    if offset == 0:
        return 0
    # From the byte before: a line that begins at `offset` has its predecessor's end there.
    position = offset - 1
    stream.seek(position)
    while block := stream.read(2**16):
        if (found := block.find(b"\n")) >= 0:
            return position + found + 1
        position += len(block)
    return position


def locate(path: str) -> tuple[FileSystem, str]:
    """The file system of a path or URI, and the path on it. Raises SourceError if no file system knows it."""
    if path.startswith("file:"):
        path = unquote(urlsplit(path).path)
    if "://" not in path:
        return LocalFileSystem(), str(Path(path).absolute())
    scheme, _, rest = path.partition("://")
    authority, slash, key = rest.partition("/")
    key, question, settings = key.partition("?")
    try:
        filesystem, root = _file_system({"s3a": "s3", "s3n": "s3"}.get(scheme, scheme), authority, question + settings)
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: {error}; give a local path or a URI that pyarrow knows, such as s3://bucket/path") from error
    return filesystem, f"{root.rstrip('/')}{slash}{key}"


@lru_cache(maxsize=64)
def _file_system(scheme: str, authority: str, settings: str) -> tuple[FileSystem, str]:
    """Connecting costs a round trip, so a file system is kept for all the paths on it."""
    return FileSystem.from_uri(f"{scheme}://{authority}/{settings}")


def _find(path: str) -> list[File]:
    if path.startswith(PACKAGE):
        with naming(path), open_file(path) as resource:
            return [File(path, resource.size(), "")]
    filesystem, inner = locate(path)
    with naming(path):
        at = filesystem.get_file_info(inner)
        if at.type == FileType.File:
            return [_file(path, inner, at)]
        if at.type == FileType.Directory:
            found = [entry for entry in filesystem.get_file_info(FileSelector(inner, recursive=True)) if entry.is_file]
        else:
            found = _matching(filesystem, inner)
    seen = [_file(path, inner, entry) for entry in found if not _hidden(entry.path, inner)]
    if not seen:
        raise SourceError(f"{path}: {'no file in this folder' if at.type == FileType.Directory else 'no such file'}; give a path that exists")
    return seen


def _matching(filesystem: FileSystem, pattern: str) -> list[FileInfo]:
    """Files that a glob names, and those inside folders that it names."""
    if not re.search(r"[*?\[{]", pattern):
        return []
    base = re.split(r"[*?\[{]", pattern, maxsplit=1)[0].rpartition("/")[0] or "/"
    wildcards = {"*": "[^/]*", "?": "[^/]", "{": "(?:", "}": ")", ",": "|"}
    tokens = re.findall(r"\[[^\]]*\]|.", pattern)
    regex = "".join(token if len(token) > 1 else wildcards.get(token, re.escape(token)) for token in tokens)
    found = filesystem.get_file_info(FileSelector(base, allow_not_found=True, recursive=True))
    return [entry for entry in found if entry.is_file and re.fullmatch(f"{regex}(?:/.*)?", entry.path)]


def _hidden(path: str, root: str) -> bool:
    """Whether a name on the way from `root` hides it; Hive's `_column=value` folders do not."""
    below = path.removeprefix(re.split(r"[*?\[{]", root, maxsplit=1)[0])
    return any(name.startswith(".") or (name.startswith("_") and "=" not in name) for name in below.split("/"))


def _file(path: str, inner: str, entry: FileInfo) -> File:
    """A found file under a path that `locate` understands, wherever it is opened."""
    scheme, separator, rest = path.partition("://")
    settings = rest.partition("?")
    if not separator or scheme == "file":
        name = entry.path
    else:
        authority = settings[0].partition("/")[0]
        prefix = inner.removesuffix(settings[0].partition("/")[2])
        name = f"{scheme}://{authority}/{entry.path.removeprefix(prefix)}{settings[1]}{settings[2]}"
    return File(name, entry.size or 0, entry.mtime.isoformat() if entry.mtime else "")


@contextmanager
def _open_resource(path: str) -> Iterator[pa.NativeFile]:
    package, _, name = path.removeprefix(PACKAGE).partition("/")
    try:
        resource: Any = files(package).joinpath(name)
    except ModuleNotFoundError as error:
        raise SourceError(f"{path}: {error}; install the package on every machine that Spark uses") from error
    with as_file(resource) as local, pa.OSFile(str(local)) as stream:
        yield stream
