"""Opens files, on any file system that pyarrow supports or in an installed Python package (package://name/file), and recognizes binary
formats by their first bytes."""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from pyarrow.fs import FileSystem, LocalFileSystem

from pipelines.errors import SourceError

PACKAGE = "package://"
BLOCK_BYTES = 4 * 2**20
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".br")
PARQUET = "Parquet"
_BEGINNINGS = {
    b"PAR1": PARQUET, b"PARE": "encrypted Parquet", b"ORC": "ORC", b"Obj\x01": "Avro", b"ARROW1": "Arrow", b"PK\x03\x04": "ZIP or Excel",
    b"SQLite format 3": "SQLite", b"\x89HDF": "HDF5",
}  # fmt: skip
_CONTROLS = {*range(32)} - {*b"\t\n\f\r"}
"""Bytes that no text has."""


@contextmanager
def file_errors(path: str) -> Iterator[None]:
    """Turns errors of a file system, or of a reader of the file's format, into a SourceError that names the path."""
    try:
        yield
    except (OSError, pa.ArrowException, ValueError, OverflowError) as error:
        raise SourceError(f"{path} cannot be read: {' '.join(str(error).split())[:300]}; get the file again, or mend its store") from error


def locate(path: str) -> tuple[FileSystem, str]:
    """The file system of a path or URI, and the path on it. Raises SourceError if no file system knows it."""
    if path.startswith("file:"):
        path = unquote(re.sub("^file:(//[^/]*)?", "", path))
    if "://" not in path:
        return LocalFileSystem(), str(Path(path).absolute())
    scheme, _, location = path.partition("://")
    authority, slash, key = location.partition("/")
    key, question, settings = key.partition("?")
    try:
        filesystem, root = _file_system({"s3a": "s3", "s3n": "s3"}.get(scheme, scheme), authority, question + settings)
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: {error}; give a local path or a URI that pyarrow knows, such as s3://bucket/path") from error
    return filesystem, f"{root.rstrip('/')}{slash}{key}"


@lru_cache(maxsize=64)
def _file_system(scheme: str, authority: str, settings: str) -> tuple[FileSystem, str]:
    """A cached file system for all paths on it, since connecting costs a round trip."""
    return FileSystem.from_uri(f"{scheme}://{authority}/{settings}")


def is_splittable(path: str) -> bool:
    """Whether reading may start in the middle of the file."""
    return not path.startswith(PACKAGE) and not path.endswith(COMPRESSED)


def open_file(path: str) -> AbstractContextManager[pa.NativeFile]:
    """The file's raw bytes, for random access."""
    if path.startswith(PACKAGE):
        return pa.OSFile(str(inside_package(path)))
    filesystem, inner = locate(path)
    return filesystem.open_input_file(inner)


@contextmanager
def content(path: str) -> Iterator[pa.NativeFile]:
    """The file's content from its beginning, decompressed according to its extension. Raises SourceError if it cannot be read."""
    with file_errors(path), open_file(path) as raw:
        yield _decompressing_stream(path, raw)


def blocks(path: str) -> Iterator[bytes]:
    """The file's content, in blocks. Raises SourceError if it is truncated or cannot be read."""
    with content(path) as stream:
        while block := stream.read(BLOCK_BYTES):
            yield block


def decompress(path: str, data: bytes) -> Iterator[bytes]:
    """The content, in blocks, of a file whose bytes are in memory. Raises SourceError if they are truncated."""
    with file_errors(path):
        stream = _decompressing_stream(path, pa.BufferReader(data))
        while block := stream.read(BLOCK_BYTES):
            yield block


def lines(path: str, start: int, stop: int) -> Iterator[bytes]:
    """The content of all lines that begin at bytes [start, stop) of a file; all content if the file cannot be split."""
    if not is_splittable(path):
        yield from blocks(path)
        return
    with file_errors(path), open_file(path) as stream:
        position, end = _line_start(stream, start), _line_start(stream, stop)
        stream.seek(position)
        while block := stream.read(min(BLOCK_BYTES, end - position)):
            position += len(block)
            yield block


def _decompressing_stream(path: str, raw: pa.NativeFile) -> pa.NativeFile:
    return pa.CompressedInputStream(raw, pa.Codec.detect(path).name) if path.endswith(COMPRESSED) else raw


def _line_start(stream: pa.NativeFile, offset: int) -> int:
    """The offset of the first line that begins at or after `offset`."""
    if offset == 0:
        return 0
    # From the byte before, where a line that begins at `offset` has its predecessor's line break.
    position = offset - 1
    stream.seek(position)
    while block := stream.read(2**16):
        if (line_break := block.find(b"\n")) >= 0:
            return position + line_break + 1
        position += len(block)
    return position


def package_folder(path: str) -> Path:
    """The folder of the package of package://name/file, found without importing it, which would run it. Raises SourceError if it is not
    installed, or not in a folder."""
    name = path.removeprefix(PACKAGE).partition("/")[0]
    try:
        spec = find_spec(name) if name.isidentifier() else None
    except ValueError:  # of __main__
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise SourceError(f"{path}: no package {name} is installed in a folder; install it on every machine that Spark uses")
    return Path(next(iter(spec.submodule_search_locations)))


def inside_package(path: str) -> Path:
    """The file that package://name/file refers to. Raises SourceError if it does not exist, or is outside the package."""
    folder = package_folder(path)
    file = folder / path.removeprefix(PACKAGE).partition("/")[2]
    if not file.resolve().is_relative_to(folder.resolve()):
        raise SourceError(f"{path} leads out of the package, to {file.resolve()}; give a file inside it, or this one by its own path")
    if not file.is_file():
        raise SourceError(f"{path}: {'a folder' if file.is_dir() else 'no such file'} in {folder}; give a file, or a glob such as *.csv")
    return file


def binary_format(path: str) -> str:
    """The binary format of which a file has the first bytes; empty for text. Raises SourceError if it cannot be read."""
    with file_errors(path), open_file(path) as stream:
        beginning = bytes(stream.read(64))
    if not set(beginning) & _CONTROLS:  # a text may begin with ORCID or PAR1
        return ""
    return next((kind for magic, kind in _BEGINNINGS.items() if beginning.startswith(magic)), "")
