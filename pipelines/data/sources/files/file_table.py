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
from pyarrow.fs import FileSelector
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.config.source.source import FileTableSettings
from pipelines.data.sources.base import NoIncrementError, RawTable, distribute
from pipelines.data.sources.files import files
from pipelines.data.sources.files.content import BLOCK_BYTES, PACKAGE, file_errors, locate, open_file
from pipelines.data.sources.files.dvc import find_dvc_output
from pipelines.data.sources.files.files import OPEN_BYTES, TASK_BYTES, Search, glob_root, task_bytes, whole_files
from pipelines.data.sources.files.listing import COLUMNS as FOUND_COLUMNS
from pipelines.data.sources.files.listing import File, Files, iso_texts, to_columns
from pipelines.data.versions.checked_tables import BATCH_ROWS
from pipelines.data.versions.raw_inputs import SourceFile
from pipelines.data.versions.source_files import COLUMNS, SourceFiles, collect_files
from pipelines.runtime.environment import is_local

_CHECKSUMS = pa.schema({"number": pa.int64(), "bytes": pa.int64(), "checksum": pa.binary()})
_FOUND = pa.schema({"path": pa.string(), "bytes": pa.int64(), "modified": pa.int64(), "folders": pa.string()})
FILES_PER_JOB = 500_000
"""Files whose paths are sent to Spark's tasks at once."""
TASKS_PER_CORE = 4
"""Tasks that list folders, since these differ in size."""
_DETOUR = r"://|^file:|//|/\.{1,2}(/|$)"
"""In paths that are not in their canonical form."""
_NOTHING, _BLANK = pa.scalar(None, pa.large_string()), pa.scalar(" ", pa.large_string())
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
    def files(self) -> Sequence[File]:
        """The table's files, listed once. Raises SourceError if a path matches none."""
        return files.find(self.settings.path, find_in_tasks)

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

    def only(self, chosen: Sequence[File]) -> Self:
        """This table with some of its files. Columns of folders are still those of all files."""
        self._root  # noqa: B018 -- decides relative names, and is that of all files
        part = copy(self)
        part.files, part.known_identity = chosen, None
        return part

    def _new_paths(self, current: Sequence[SourceFile], earlier: Sequence[SourceFile]) -> set[str]:
        """The normal paths of the files of `current` that are not among the `earlier` ones. Those that were only moved are the same,
        unless rows contain names. Raises NoIncrementError if an earlier file is gone or altered."""
        current, earlier = _drop_common_files(current, earlier)
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
        return bool(getattr(self.settings, "file_column", "")) or to_columns(self.files).have_folders

    def state(self) -> Sequence[SourceFile]:
        return stats(files.find(self.settings.path, find_in_tasks))

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

    def content_lines(self, files: Sequence[SourceFile], with_names: bool) -> Iterator[str]:
        """A line for each file, sorted: its checksum, its relative name if rows contain it, and the folders that make columns."""
        listing, listed = to_columns(self.files), collect_files(files)
        if not with_names and not listing.have_folders:
            yield from listed.checksums_in_order()
            return
        paths = listed.table["path"]
        names = self._relative_names(paths) if with_names else None
        folders = self._find_folders(paths, listing) if listing.have_folders else None
        rest = names if folders is None else folders if names is None else _join(names, folders)
        lines = pa.table([listed.table["checksum"], rest], ["checksum", "rest"]).combine_chunks()
        # In this order, so that all lines are never there at once: of ten million files, they take a gigabyte, and sorted another one.
        order = pc.sort_indices(lines, sort_keys=[("checksum", "ascending"), ("rest", "ascending")])
        for start in range(0, len(order), BATCH_ROWS):
            batch = lines.take(order[start : start + BATCH_ROWS])
            yield from _join(batch["checksum"], batch["rest"]).to_pylist()

    def _relative_names(self, paths: pa.ChunkedArray) -> pa.ChunkedArray:
        """`relative_name` of each: what follows the folder, of paths without any detour."""
        start = f"{self._root.rstrip('/')}/"
        is_plain = pc.and_(pc.starts_with(paths, start), pc.invert(pc.match_substring_regex(paths, _DETOUR)))
        if pc.all(is_plain).as_py():
            return pc.utf8_slice_codeunits(paths, len(start))
        return pa.chunked_array([[self.relative_name(path) for path in paths.to_pylist()]], pa.large_string())

    def _find_folders(self, paths: pa.ChunkedArray, listing: Files) -> pa.ChunkedArray:
        """The folders that make columns, of the files at these paths."""
        if paths.equals(listing.table["path"]):
            return listing.table["folders"]
        by_path = {_normal(file.path): file.folders for file in listing if file.folders}
        return pa.chunked_array([[by_path.get(_normal(path), "") for path in paths.to_pylist()]], pa.large_string())


def _join(*parts: pa.ChunkedArray) -> pa.ChunkedArray:
    """The parts of each row that are not empty, with a blank between them."""
    filled = [pc.if_else(pc.equal(part, ""), _NOTHING, part) for part in parts]
    return pc.binary_join_element_wise(*filled, _BLANK, null_handling="skip")


def _drop_common_files(*listings: Sequence[SourceFile]) -> Iterator[Sequence[SourceFile]]:
    """Of two listings, the files that only one has: those at the same path with the same checksum are the same."""
    tables = [collect_files(listing).table for listing in listings]
    for table, other in (tables, tables[::-1]):
        yield SourceFiles(table.join(other, ["path", "checksum"], join_type="left anti"))


def _normal(path: str) -> str:
    """A path or URI in a canonical form."""
    path = re.sub("^file:(//)?", "", path)
    return posixpath.abspath(f"/{path}" if "://" in path else path)


def checksums(spark: SparkSession, listed: Sequence[File]) -> Sequence[SourceFile]:
    """Every file by path, with the SHA-256 of its bytes, computed in Spark's tasks, or here if that is sooner. Raises SourceError if one
    cannot be read."""
    columns = to_columns(listed)
    paths = columns.table["path"]
    are_on_disk = not pc.any(pc.and_(pc.match_substring(paths, "://"), pc.invert(pc.starts_with(paths, PACKAGE)))).as_py()
    are_small = (columns.sizes + OPEN_BYTES).sum() < DRIVER_BYTES
    if is_local(str(spark.sparkContext.master)) and are_on_disk and are_small:
        tables = [pa.Table.from_batches(_hash_files((0, paths.combine_chunks())), _CHECKSUMS)]
    else:
        jobs = [columns[start : start + FILES_PER_JOB] for start in range(0, len(columns), FILES_PER_JOB)]
        tables = [_hash_in_tasks(spark, job) for job in jobs]
    hashed = pa.concat_tables(tables)
    return SourceFiles(pa.table([paths, hashed["bytes"], _name_digests(hashed["checksum"])], COLUMNS.names)).sort_by_path()


def _hash_in_tasks(spark: SparkSession, listed: Files) -> pa.Table:
    work = whole_files(listed, task_bytes(listed, spark.sparkContext.defaultParallelism))
    return distribute(spark, work, _hash_files, "number long, bytes long, checksum binary").toArrow().cast(_CHECKSUMS).sort_by("number")


def _hash_files(work: tuple[int, pa.Array]) -> Iterator[pa.RecordBatch]:
    first, paths = work
    for number, path in enumerate(paths.to_pylist(), first):
        digest, size = sha256(), 0
        with file_errors(path), open_file(path) as stream:
            while block := stream.read(BLOCK_BYTES):
                digest.update(block)
                size += len(block)
        yield pa.RecordBatch.from_pylist([{"number": number, "bytes": size, "checksum": digest.digest()}], schema=_CHECKSUMS)


def _name_digests(digests: pa.ChunkedArray) -> pa.ChunkedArray:
    """`sha256:…` for each."""
    chunks = [pa.array([f"sha256:{value.hex()}" for value in chunk.to_pylist()], pa.large_string()) for chunk in digests.chunks]
    return pa.chunked_array(chunks, pa.large_string())


def stats(listed: Sequence[File]) -> Sequence[SourceFile]:
    """Every file by path, with only size and modification time: cheap, and enough to detect that a file was written to."""
    columns = to_columns(listed)
    marks = [pa.array([], pa.large_string())]
    for start in range(0, len(columns), BATCH_ROWS):
        part = columns[start : start + BATCH_ROWS].table
        texts = pc.binary_join_element_wise(part["bytes"].cast(pa.large_string()), iso_texts(part["modified"]), _BLANK)
        marks.append(pa.array([f"stat:{sha256(text.encode()).hexdigest()}" for text in texts.to_pylist()], pa.large_string()))
    return SourceFiles(pa.table([columns.table["path"], columns.table["bytes"], pa.chunked_array(marks)], COLUMNS.names))


def is_pack_worthwhile(listed: Sequence[File]) -> bool:
    """Whether there are many files, opening them costs more than reading them, and each is small enough for a row."""
    sizes = to_columns(listed).sizes
    return len(sizes) >= MANY_FILES and sizes.sum() < len(sizes) * OPEN_BYTES and sizes.max() <= TASK_BYTES[1]


def pack_rows(rows: DataFrame) -> DataFrame:
    """Pack the rows of Spark's binaryFile."""
    checksum = F.concat(F.lit("sha256:"), F.sha2("content", 256))
    return rows.withColumn(PACKED_CHECKSUM, checksum).persist(StorageLevel.DISK_ONLY)


def pack_files(spark: SparkSession, listed: Sequence[File]) -> DataFrame:
    """Pack the files; PACKED_NUMBER is the index of each in `listed`."""
    work = whole_files(listed, task_bytes(listed, spark.sparkContext.defaultParallelism))
    columns = f"{PACKED_NUMBER} int, path string, content binary, {PACKED_CHECKSUM} string"
    return distribute(spark, work, _read_files, columns).persist(StorageLevel.DISK_ONLY)


def _read_files(work: tuple[int, pa.Array]) -> Iterator[pa.RecordBatch]:
    first, paths = work
    schema = pa.schema({PACKED_NUMBER: pa.int32(), "path": pa.string(), "content": pa.binary(), PACKED_CHECKSUM: pa.string()})
    for number, path in enumerate(paths.to_pylist(), first):
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


def find_in_tasks(search: Search, folders: list[str]) -> pa.Table | None:
    """The files of a search at any depth below the folders, found by Spark's tasks; None if there is no session yet."""
    spark = SparkSession.getActiveSession()
    if spark is None:
        return None
    tasks = min(len(folders), TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    work = [folders[number::tasks] for number in range(tasks)]
    rows = distribute(spark, work, partial(_find_below, search), "path string, bytes long, modified long, folders string")
    return rows.toArrow().cast(FOUND_COLUMNS)


def _find_below(search: Search, folders: list[str]) -> Iterator[pa.RecordBatch]:
    filesystem, _ = locate(search.path)
    with file_errors(search.path):
        for folder in folders:
            listed = filesystem.get_file_info(FileSelector(folder, allow_not_found=True, recursive=True))
            matching = pa.Table.from_batches(search.select(listed), FOUND_COLUMNS)
            search.check_links(listed, matching)
            yield from matching.cast(_FOUND).to_batches()
