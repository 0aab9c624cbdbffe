"""Tables of files: found by their paths, and identified by the checksums of their bytes.

Whole and small files are packed on the executors' disks: each file is opened once, for its checksum and its content. Opening a small file
costs more than reading it, and every pass over the rows would open all of them again. The packs are on disks, not in memory, since a folder
of images or recordings may have any size. Text in large files is not packed, since reading it twice is cheaper than writing it; nor is
Parquet, where a pass reads only the columns that it needs.
"""

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import copy
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileInfo, FileSelector, FileType
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.config.source.source import FileTableSettings
from pipelines.data.sources.base import NoIncrementError, RawTable, distribute
from pipelines.data.sources.files import files
from pipelines.data.sources.files.content import BLOCK_BYTES, PACKAGE, file_errors, locate, open_file
from pipelines.data.sources.files.dvc import find_dvc_output
from pipelines.data.sources.files.files import OPEN_BYTES, TASK_BYTES, File, glob_root, ranges, task_bytes
from pipelines.data.versions.raw_inputs import SourceFile
from pipelines.data.versions.source_files import COLUMNS, SourceFiles, collect_files
from pipelines.runtime.environment import is_local

_CHECKSUMS = pa.schema({"path": pa.string(), "bytes": pa.int64(), "checksum": pa.string()})
_ENTRIES = pa.schema({"path": pa.string(), "is_file": pa.bool_(), "bytes": pa.int64(), "modified": pa.int64()})
TASKS_PER_CORE = 4
"""Tasks that list folders, since these differ in size."""
LISTED_AT_ONCE = 50_000
"""Entries of a batch."""
FileSettings = TypeVar("FileSettings", bound=FileTableSettings)
DRIVER_BYTES = 16 * 2**20
"""Fewer bytes take the driver less time than Spark takes for a job; each file counts OPEN_BYTES more."""
PACKED_NUMBER, PACKED_CHECKSUM = "_number", "_checksum"
"""Columns of a pack beside `path` and `content`. The first pass over it reads the files."""
MANY_FILES = 64
"""Packing pays off from this number of small files."""


class FileTable(RawTable[FileSettings]):
    """Checksums identify the bytes, independent of their location; a subclass whose rows contain paths adds them to `names`."""

    known_identity: Sequence[SourceFile] | None = None

    @cached_property
    def files(self) -> list[File]:
        """The table's files, listed once. Raises SourceError if a path matches none."""
        return files.find(self.settings.path, lister)

    def identity(self, spark: SparkSession) -> Sequence[SourceFile]:
        if self.known_identity is None:
            self.known_identity = self.state() if self.settings.checksum == "stat" else self.read_checksums(spark)
        return self.known_identity

    def read_checksums(self, spark: SparkSession) -> Sequence[SourceFile]:
        """Every file with the SHA-256 of its bytes."""
        return checksums(spark, self.files)

    def since(self, spark: SparkSession, earlier: Sequence[SourceFile]) -> "Self | None":
        paths = self._new_paths(self.identity(spark), earlier)
        return self.only([file for file in self.files if _normal(file.path) in paths]) if paths else None

    def only(self, chosen: list[File]) -> Self:
        """This table with some of its files. Columns of folders are still those of all files."""
        self._root  # noqa: B018 -- decides relative names, and is that of all files
        part = copy(self)
        part.files, part.known_identity = chosen, None
        return part

    def _new_paths(self, current: Sequence[SourceFile], earlier: Sequence[SourceFile]) -> set[str]:
        """The normal paths of the files of `current` that are not among the `earlier` ones. Those that were only moved are the same,
        unless rows contain names. Raises NoIncrementError if an earlier file is gone or altered."""
        names = {file: self.relative_name(file.path) for file in {*current, *earlier}}
        before = Counter((names[file], file.checksum) for file in earlier)
        unmatched = []
        for file in current:
            if before[names[file], file.checksum]:
                before[names[file], file.checksum] -= 1
            else:
                unmatched.append(file)
        unmatched_checksums = Counter[str]()
        for (_, checksum), count in before.items():
            unmatched_checksums[checksum] += count
        added = set()
        for file in unmatched:
            if unmatched_checksums[file.checksum] and not self._has_names:
                unmatched_checksums[file.checksum] -= 1
            else:
                added.add(_normal(file.path))
        if missing := [file.path for file in earlier if unmatched_checksums[file.checksum]]:
            raise NoIncrementError(f"{missing[0]} is gone or altered since")
        return added

    @property
    def _has_names(self) -> bool:
        """Whether rows contain names of files or values of folders."""
        return bool(getattr(self.settings, "file_column", "")) or any(file.folders for file in self.files)

    def state(self) -> Sequence[SourceFile]:
        return stats(files.find(self.settings.path, lister))

    def notes(self) -> Iterator[str]:
        """Where DVC has the files from."""
        for path in self.settings.paths:
            place = glob_root(path)
            output = None if "://" in place else find_dvc_output(Path(place))
            if output:
                has_all_files = self.settings.paths == (place,)
                total_bytes = collect_files(self.known_identity or ()).bytes if has_all_files else output.bytes
                yield f"source.tables.{self.name}: {output.note(Path(place), total_bytes)}"

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
        folders = {_normal(file.path): file.folders for file in self.files if file.folders}
        if not with_names and not folders:
            return list(collect_files(files).checksums_in_order())
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
        table = pa.Table.from_batches(_hash_files(files), _CHECKSUMS)
    else:
        tasks = ranges(files, task_bytes(files, spark.sparkContext.defaultParallelism), split=False)
        work = [[task_range.file for task_range in task] for task in tasks]
        table = distribute(spark, work, _hash_files, "path string, bytes long, checksum string").toArrow()
    return SourceFiles(table.sort_by("path"))


def _hash_files(files: list[File]) -> Iterator[pa.RecordBatch]:
    for file in files:
        digest, size = sha256(), 0
        with file_errors(file.path), open_file(file.path) as stream:
            while block := stream.read(BLOCK_BYTES):
                digest.update(block)
                size += len(block)
        yield pa.RecordBatch.from_pylist(
            [{"path": file.path, "bytes": size, "checksum": f"sha256:{digest.hexdigest()}"}], schema=_CHECKSUMS
        )


def stats(files: list[File]) -> Sequence[SourceFile]:
    """Every file by path, with only size and modification time: cheap, and enough to detect that a file was written to."""
    marks = [f"stat:{sha256(f'{file.bytes} {file.modified}'.encode()).hexdigest()}" for file in files]
    columns = [[file.path for file in files], [file.bytes for file in files], marks]
    return SourceFiles(pa.table([pa.array(values, kind.type) for values, kind in zip(columns, COLUMNS, strict=True)], COLUMNS))


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
    table = pack.select("path", F.octet_length("content").cast("long").alias("bytes"), PACKED_CHECKSUM).toArrow()
    table = table.rename_columns(COLUMNS.names).group_by(COLUMNS.names).aggregate([])
    paths = pc.replace_substring_regex(table["path"], "^file:", "")
    return SourceFiles(SourceFiles(table.set_column(table.column_names.index("path"), "path", paths).select(COLUMNS.names)).ordered)


def lister(path: str) -> files.FolderLister:
    """Lists folders on the file system of a path in Spark's tasks."""
    return partial(_list_in_tasks, path)


def _list_in_tasks(path: str, folders: list[str]) -> list[FileInfo] | None:
    """The entries at any depth below the folders, listed in Spark's tasks; None if there is no session yet."""
    spark = SparkSession.getActiveSession()
    if spark is None:
        return None
    tasks = min(len(folders), TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    work = [(path, folders[number::tasks]) for number in range(tasks)]
    table = distribute(spark, work, _list_folders, "path string, is_file boolean, bytes long, modified long").toArrow()
    kinds = {True: FileType.File, False: FileType.Directory}
    columns = (table[name].to_pylist() for name in ("path", "is_file", "bytes", "modified"))
    return [FileInfo(name, kinds[is_file], size=size, mtime_ns=time) for name, is_file, size, time in zip(*columns, strict=True)]


def _list_folders(work: tuple[str, list[str]]) -> Iterator[pa.RecordBatch]:
    path, folders = work
    filesystem, _ = locate(path)
    with file_errors(path):
        for folder in folders:
            entries = filesystem.get_file_info(FileSelector(folder, allow_not_found=True, recursive=True))
            for start in range(0, len(entries), LISTED_AT_ONCE):
                batch = entries[start : start + LISTED_AT_ONCE]
                columns = {"path": [entry.path for entry in batch], "is_file": [entry.is_file for entry in batch]}
                columns |= {"bytes": [entry.size for entry in batch], "modified": [entry.mtime_ns for entry in batch]}
                yield pa.RecordBatch.from_pydict(columns, _ENTRIES)
