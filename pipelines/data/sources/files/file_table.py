"""Tables of files: found by their paths, and identified by the checksums of their bytes.

Whole and small files are packed on the executors' disks: each file is opened once, for its checksum and its content. Opening a small file
costs more than reading it, and every pass over the rows would open all of them again. The packs are on disks, not in memory, since a folder
of images or recordings may have any size. Text in large files is not packed, since reading it twice is cheaper than writing it; nor is
Parquet, where a pass reads only the columns that it needs.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from hashlib import sha256
from typing import TypeVar

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.config.source.source import FileTableSettings
from pipelines.data.sources.base import RawTable, distribute
from pipelines.data.sources.files import files
from pipelines.data.sources.files.content import BLOCK_BYTES, PACKAGE, file_errors, open_file
from pipelines.data.sources.files.files import OPEN_BYTES, TASK_BYTES, File, glob_root, ranges, task_bytes
from pipelines.data.versions.raw_inputs import SourceFile
from pipelines.runtime.environment import is_local

FileSettings = TypeVar("FileSettings", bound=FileTableSettings)
DRIVER_BYTES = 16 * 2**20
"""Fewer bytes take the driver less time than Spark takes for a job; each file counts OPEN_BYTES more."""
PACKED_NUMBER, PACKED_CHECKSUM = "_number", "_checksum"
"""Columns of a pack beside `path` and `content`. The first pass over it reads the files."""
MANY_FILES = 64
"""Packing pays off from this number of small files."""


class FileTable(RawTable[FileSettings]):
    """Checksums identify the bytes, independent of their location; a subclass whose rows contain paths adds them to `names`."""

    @cached_property
    def files(self) -> list[File]:
        """The table's files, listed once. Raises SourceError if a path matches none."""
        return files.find(self.settings.path)

    def identity(self, spark: SparkSession) -> Sequence[SourceFile]:
        return self.state() if self.settings.checksum == "stat" else checksums(spark, self.files)

    def state(self) -> Sequence[SourceFile]:
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

    def content_lines(self, files: Sequence[SourceFile], with_names: bool) -> list[str]:
        """A line for each file, sorted: its checksum, its relative name if rows contain it, and the folders that make columns."""
        folders = {_normal(file.path): file.folders for file in self.files}
        names = [self.relative_name(file.path) if with_names else "" for file in files]
        parts = [(file.checksum, name, folders.get(_normal(file.path), "")) for file, name in zip(files, names, strict=True)]
        return sorted(" ".join(filter(None, part)) for part in parts)


def _normal(path: str) -> str:
    """A path or URI in a canonical form."""
    path = re.sub("^file:(//)?", "", path)
    return posixpath.abspath(f"/{path}" if "://" in path else path)


def checksums(spark: SparkSession, files: list[File]) -> Sequence[SourceFile]:
    """Every file by path, with the SHA-256 of its bytes, computed in Spark's tasks, or here if that is sooner. Raises SourceError if one
    cannot be read."""
    are_on_disk = all("://" not in file.path or file.path.startswith(PACKAGE) for file in files)
    are_small = sum(file.bytes + OPEN_BYTES for file in files) < DRIVER_BYTES
    if is_local(str(spark.sparkContext.master)) and are_on_disk and are_small:
        rows = [row for batch in _hash_files(files) for row in batch.to_pylist()]
    else:
        tasks = ranges(files, task_bytes(files, spark.sparkContext.defaultParallelism), split=False)
        work = [[task_range.file for task_range in task] for task in tasks]
        rows = [row.asDict() for row in distribute(spark, work, _hash_files, "path string, bytes long, checksum string").collect()]
    return tuple(sorted((SourceFile(**row) for row in rows), key=lambda file: file.path))


def _hash_files(files: list[File]) -> Iterator[pa.RecordBatch]:
    schema = pa.schema({"path": pa.string(), "bytes": pa.int64(), "checksum": pa.string()})
    for file in files:
        digest, size = sha256(), 0
        with file_errors(file.path), open_file(file.path) as stream:
            while block := stream.read(BLOCK_BYTES):
                digest.update(block)
                size += len(block)
        yield pa.RecordBatch.from_pylist([{"path": file.path, "bytes": size, "checksum": f"sha256:{digest.hexdigest()}"}], schema=schema)


def stats(files: list[File]) -> Sequence[SourceFile]:
    """Every file by path, with only size and modification time: cheap, and enough to detect that a file was written to."""
    marks = [sha256(f"{file.bytes} {file.modified}".encode()).hexdigest() for file in files]
    return tuple(SourceFile(path=file.path, bytes=file.bytes, checksum=f"stat:{mark}") for file, mark in zip(files, marks, strict=True))


def is_pack_worthwhile(files: list[File]) -> bool:
    """Whether there are many files, opening them costs more than reading them, and each is small enough for a row."""
    sizes = [file.bytes for file in files]
    return len(sizes) >= MANY_FILES and sum(sizes) < len(sizes) * OPEN_BYTES and max(sizes) <= TASK_BYTES[1]


def pack_rows(rows: DataFrame) -> DataFrame:
    """Pack the rows of Spark's binaryFile."""
    checksum = F.concat(F.lit("sha256:"), F.sha2("content", 256))
    return rows.withColumn(PACKED_CHECKSUM, checksum).persist(StorageLevel.DISK_ONLY)


def pack_files(spark: SparkSession, files: list[File]) -> DataFrame:
    """Pack the files; PACKED_NUMBER is the index of each in `files`."""
    numbers = iter(range(len(files)))
    tasks = ranges(files, task_bytes(files, spark.sparkContext.defaultParallelism), split=False)
    work = [[(next(numbers), task_range.file.path) for task_range in task] for task in tasks]
    columns = f"{PACKED_NUMBER} int, path string, content binary, {PACKED_CHECKSUM} string"
    return distribute(spark, work, _read_files, columns).persist(StorageLevel.DISK_ONLY)


def _read_files(numbered: list[tuple[int, str]]) -> Iterator[pa.RecordBatch]:
    schema = pa.schema({PACKED_NUMBER: pa.int32(), "path": pa.string(), "content": pa.binary(), PACKED_CHECKSUM: pa.string()})
    for number, path in numbered:
        with file_errors(path), open_file(path) as stream:
            content = stream.read()
        values = (number, path, content, f"sha256:{sha256(content).hexdigest()}")
        yield pa.record_batch([pa.array([value], field.type) for value, field in zip(values, schema, strict=True)], schema=schema)


def checksums_of_pack(pack: DataFrame) -> Sequence[SourceFile]:
    """Every file of a pack by path, with the SHA-256 of its bytes."""
    rows = pack.select("path", F.octet_length("content"), PACKED_CHECKSUM).toArrow()
    files = zip(*(column.to_pylist() for column in rows.columns), strict=True)
    return tuple(sorted({SourceFile(path.removeprefix("file:"), size, checksum) for path, size, checksum in files}))
