"""The file operations behind versions, on local disks and on any store that pyarrow supports; and sealed JSON, whose last entry is the
SHA-256 of all bytes before it, so that every altered byte is detected."""

import errno
import json
import os
import posixpath
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from pyarrow.fs import AwsStandardS3RetryStrategy, FileInfo, FileSelector, FileSystem, FileType, LocalFileSystem, S3FileSystem

from pipelines.errors import DatasetError
from pipelines.runtime import atomic
from pipelines.runtime.disks import full_disk

FULL_DISK_REMEDY = "free some, and run the same command again"
ATTEMPTS = 5
"""Attempts at a request to an S3-compatible store before it fails, which take about ten seconds."""
SEAL = "checksum"
"""Name of the last entry of sealed JSON."""


def locate(uri: str) -> tuple[FileSystem, str]:
    """The file system of a path or URI, and the path on it. Raises DatasetError if no file system knows it. An S3 URI may carry options of
    pyarrow's S3FileSystem: s3://bucket/path?endpoint_override=127.0.0.1:9000&scheme=http."""
    if "://" not in uri:
        return LocalFileSystem(), os.path.abspath(uri)
    try:
        if uri.startswith("s3://"):
            parts = urlsplit(uri)
            retries = AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS)
            store = S3FileSystem(retry_strategy=retries, connect_timeout=5, request_timeout=60, **dict(parse_qsl(parts.query)))
            return store, (parts.netloc + parts.path).rstrip("/")
        return FileSystem.from_uri(uri)
    except (OSError, TypeError, ValueError) as error:
        raise DatasetError(f"{uri}: {error}; give a local path or a URI such as s3://bucket/path") from error


@contextmanager
def store_errors(path: str) -> Iterator[None]:
    """Turns an OSError into a DatasetError that names the path."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DatasetError(full_disk(path, "a version is written", FULL_DISK_REMEDY)) from error
        raise DatasetError(f"{path} cannot be read or written: {error}; mend that, and run the same command again") from error


def part_path(root: str, file: str) -> str:
    """The path of a file that a version names relative to its own folder `root`. One of `../VERSION/…` is a part of another version, which
    this one shares."""
    return posixpath.normpath(f"{root}/{file}") if file.startswith("../") else f"{root}/{file}"


def ask(filesystem: FileSystem, path: str) -> FileInfo:
    """The store's information about a path. Raises DatasetError if the store does not answer, which is not a corrupt file."""
    try:
        return filesystem.get_file_info(path)
    except OSError as error:
        raise DatasetError(
            f"{path}: the store did not answer, asked up to {ATTEMPTS} times: {error}; start again when it is back"
        ) from error


def read(filesystem: FileSystem, path: str) -> bytes | None:
    """A small file's bytes, or None if it does not exist."""
    with store_errors(path):
        try:
            with filesystem.open_input_file(path) as file:
                return file.read()
        except FileNotFoundError:
            return None


def create(filesystem: FileSystem, path: str, content: bytes) -> bool:
    """Make a file appear whole or not at all. Returns False, and changes nothing, if it is there already. On a local disk the first of
    racing writers wins; on a store the last one does, which is harmless as long as equal inputs make equal content."""
    with store_errors(path):
        if not isinstance(filesystem, LocalFileSystem):
            if filesystem.get_file_info(path).type != FileType.NotFound:
                return False
            with filesystem.open_output_stream(path) as stream:
                stream.write(content)
            return True
        return atomic.create_file(path, content)


def put_file(filesystem: FileSystem, path: str, content: bytes) -> None:
    """Write a file in place of an older one, so that readers find the one or the other."""
    with store_errors(path):
        if isinstance(filesystem, LocalFileSystem):
            atomic.write_file(path, content)
        else:
            with filesystem.open_output_stream(path) as stream:
                stream.write(content)


def check_creation(filesystem: FileSystem, folder: str) -> None:
    """Raises DatasetError if `create` cannot work in a folder, which is made if it does not exist: before the work rather than after it."""
    if not isinstance(filesystem, LocalFileSystem):
        return
    make_folder(filesystem, folder)
    with store_errors(folder):
        if not atomic.has_hard_links(folder):
            raise DatasetError(
                f"{folder} is on a file system without hard links, by which results appear whole or not at all; "
                "choose a folder on another file system, such as one of Linux, or on an object store"
            )


def entries(filesystem: FileSystem, folder: str, recursive: bool = False) -> list[FileInfo]:
    """The entries of a folder, sorted by path; none if it does not exist."""
    with store_errors(folder):
        infos = filesystem.get_file_info(FileSelector(folder, allow_not_found=True, recursive=recursive))
    return sorted(infos, key=lambda entry: entry.path)


def remove_folder(filesystem: FileSystem, folder: str) -> None:
    with suppress(FileNotFoundError):
        filesystem.delete_dir(folder)


def remove_file(filesystem: FileSystem, path: str) -> None:
    """Remove a file, if it is there."""
    with store_errors(path):
        if filesystem.get_file_info(path).is_file:
            filesystem.delete_file(path)


def make_folder(filesystem: FileSystem, folder: str) -> None:
    with store_errors(folder):
        filesystem.create_dir(folder, recursive=True)


def checksum(content: bytes) -> str:
    return f"sha256:{sha256(content).hexdigest()}"


def seal(values: Mapping[str, Any]) -> bytes:
    """`values`, which are not empty, as sealed JSON."""
    return _append_seal(json.dumps(values, indent=1).encode().removesuffix(b"\n}"))


def unseal(text: bytes) -> tuple[dict[str, Any], bool]:
    """The values without the seal, and whether there is one. Raises ValueError if the text is no JSON object, or if its seal is not that of
    its bytes."""
    try:
        values = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if not isinstance(values, dict):
        raise ValueError(f"it is {type(values).__name__}, not an object")
    if SEAL not in values:
        return values, False
    if text != _append_seal(text[: -len(_append_seal(b""))]):
        raise ValueError(f"its {SEAL} is not that of its bytes")
    del values[SEAL]
    return values, True


def unseal_or_none(text: bytes) -> dict[str, Any] | None:
    """The values without the seal; None if the text is not as `seal` wrote it."""
    try:
        values, has_seal = unseal(text)
    except ValueError:
        return None
    return values if has_seal else None


def _append_seal(body: bytes) -> bytes:
    return body + f',\n "{SEAL}": "{checksum(body)}"\n}}\n'.encode()
