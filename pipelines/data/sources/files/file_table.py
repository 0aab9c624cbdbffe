"""Tables of files: found by their paths, and identified by the checksums of their bytes."""

import posixpath
import re
from collections.abc import Iterator
from functools import cached_property
from hashlib import sha256
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from pipelines.config.source.source import FileTableSettings
from pipelines.data.sources.base import RawTable, distribute
from pipelines.data.sources.files import files
from pipelines.data.sources.files.content import BLOCK_BYTES, PACKAGE, file_errors, open_file
from pipelines.data.sources.files.files import OPEN_BYTES, File, glob_root, ranges, task_bytes
from pipelines.data.versions.raw_inputs import SourceFile
from pipelines.runtime.environment import is_local

FileSettings = TypeVar("FileSettings", bound=FileTableSettings)


class FileTable(RawTable[FileSettings]):
    """Checksums identify the bytes, independent of their location; a subclass whose rows contain paths adds them to `names`."""

    @cached_property
    def files(self) -> list[File]:
        """The table's files, listed once. Raises SourceError if a path matches none."""
        return files.find(self.settings.path)

    def identity(self, spark: SparkSession) -> tuple[SourceFile, ...]:
        return self.state() if self.settings.checksum == "stat" else checksums(spark, self.files)

    def state(self) -> tuple[SourceFile, ...]:
        return stats(files.find(self.settings.path))

    def would_hold(self, place: str) -> bool:
        return any(files.would_find(path, place) for path in self.settings.paths)

    def relative_name(self, path: str) -> str:
        """The path of one of the table's files relative to its folder, as `file_column` has it; the name of a single file."""
        name = posixpath.relpath(_normal(path), self._root)
        return posixpath.basename(_normal(path)) if name == "." else name

    @cached_property
    def _root(self) -> str:
        return posixpath.commonpath([_normal(glob_root(path)) for path in self.settings.paths])

    def content_lines(self, files: tuple[SourceFile, ...], with_names: bool) -> list[str]:
        """A line for each file, sorted: its checksum, its relative name if rows contain it, and the folders that make columns."""
        folders = {_normal(file.path): file.folders for file in self.files}
        names = [self.relative_name(file.path) if with_names else "" for file in files]
        parts = [(file.checksum, name, folders.get(_normal(file.path), "")) for file, name in zip(files, names, strict=True)]
        return sorted(" ".join(filter(None, part)) for part in parts)


def _normal(path: str) -> str:
    """A path or URI in a canonical form."""
    path = re.sub("^file:(//)?", "", path)
    return posixpath.abspath(f"/{path}" if "://" in path else path)


_SCHEMA = pa.schema({"path": pa.string(), "bytes": pa.int64(), "checksum": pa.string()})


DRIVER_BYTES = 16 * 2**20
"""Fewer bytes take the driver less time than Spark takes for a job; each file counts OPEN_BYTES more."""


def checksums(spark: SparkSession, files: list[File]) -> tuple[SourceFile, ...]:
    """Every file by path, with the SHA-256 of its bytes, computed in Spark's tasks, or here if that is sooner. Raises SourceError if one
    cannot be read."""
    if is_local(str(spark.sparkContext.master)) and _is_read_at_once(files):
        rows = [row for batch in _hash_files(files) for row in batch.to_pylist()]
    else:
        tasks = ranges(files, task_bytes(files, spark.sparkContext.defaultParallelism), split=False)
        work = [[task_range.file for task_range in task] for task in tasks]
        rows = [row.asDict() for row in distribute(spark, work, _hash_files, "path string, bytes long, checksum string").collect()]
    return tuple(sorted((SourceFile(**row) for row in rows), key=lambda file: file.path))


def _is_read_at_once(files: list[File]) -> bool:
    """Whether all files are on a disk of this machine, and small."""
    is_on_disk = all("://" not in file.path or file.path.startswith(PACKAGE) for file in files)
    return is_on_disk and sum(file.bytes + OPEN_BYTES for file in files) < DRIVER_BYTES


def stats(files: list[File]) -> tuple[SourceFile, ...]:
    """Every file by path, with only size and modification time: cheap, and enough to detect that a file was written to."""
    marks = [sha256(f"{file.bytes} {file.modified}".encode()).hexdigest() for file in files]
    return tuple(SourceFile(path=file.path, bytes=file.bytes, checksum=f"stat:{mark}") for file, mark in zip(files, marks, strict=True))


def _hash_files(files: list[File]) -> Iterator[pa.RecordBatch]:
    for file in files:
        digest, size = sha256(), 0
        with file_errors(file.path), open_file(file.path) as stream:
            while block := stream.read(BLOCK_BYTES):
                digest.update(block)
                size += len(block)
        yield pa.RecordBatch.from_pylist([{"path": file.path, "bytes": size, "checksum": f"sha256:{digest.hexdigest()}"}], schema=_SCHEMA)
