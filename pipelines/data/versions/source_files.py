"""The files of raw tables as columns, since there may be ten million of them; and their list beside the manifest, which has a summary."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from itertools import chain, pairwise
from typing import Any, Self, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileSystem

from pipelines.data.versions.checked_tables import BATCH_ROWS, read_batches, write_table
from pipelines.data.versions.manifest import SourceSummary
from pipelines.data.versions.raw_inputs import SourceFile, Sources

COLUMNS = pa.schema({"path": pa.large_string(), "bytes": pa.int64(), "checksum": pa.large_string()})
"""Long texts: together they may have more than the 2 GiB that an array of short ones addresses."""
_LIST = pa.schema({"table": pa.string(), "path": pa.string(), "bytes": pa.int64(), "checksum": pa.string()})
_PLAIN = r"^[ !#-\[\]-~]*$"
"""Texts that JSON writes as they are."""


class SourceFiles(Sequence[SourceFile]):
    """Files of a table as columns. Iteration and `[number]` make SourceFiles' values; they are equal to a sequence of the same values."""

    def __init__(self, table: pa.Table) -> None:
        """`table` has the columns of COLUMNS, or shorter ones."""
        self.table = table.cast(COLUMNS)

    @property
    def bytes(self) -> int:
        return int(pc.sum(self.table["bytes"]).as_py() or 0)

    @cached_property
    def ordered(self) -> pa.Table:
        """The columns in the order of paths, then sizes and checksums."""
        if are_ascending(self.table["path"]):
            return self.table
        return self.table.sort_by([(name, "ascending") for name in COLUMNS.names])

    def sort_by_path(self) -> Self:
        """These files in that order."""
        return self if self.ordered is self.table else type(self)(self.ordered)

    def checksums_in_order(self) -> Iterator[str]:
        """The checksums in ascending order."""
        for batch in self.table.select(["checksum"]).sort_by("checksum").to_batches(BATCH_ROWS):
            yield from batch["checksum"].to_pylist()

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @overload
    def __getitem__(self, number: int) -> SourceFile: ...

    @overload
    def __getitem__(self, number: slice) -> Self: ...

    def __getitem__(self, number: int | slice) -> SourceFile | Self:
        if isinstance(number, slice):
            return type(self)(self.table.take(pa.array(np.arange(len(self))[number])))
        if not -len(self) <= number < len(self):
            raise IndexError(f"file {number} of {len(self)}")
        return SourceFile(**{name: self.table[name][number % len(self)].as_py() for name in COLUMNS.names})

    def __iter__(self) -> Iterator[SourceFile]:
        for batch in self.table.to_batches(BATCH_ROWS):
            yield from map(SourceFile, *(column.to_pylist() for column in batch.columns))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SourceFiles):
            return bool(self.table.equals(other.table))
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(SourceFile.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]  # as of other sequences with equality


def are_ascending(paths: pa.ChunkedArray) -> bool:
    """Whether each path is greater than the one before. Chunks are compared one by one, since together they would be copied."""
    chunks = [chunk for chunk in paths.chunks if len(chunk)]
    are_apart = all(before[-1].as_py() < after[0].as_py() for before, after in pairwise(chunks))
    return are_apart and all(pc.all(pc.less(chunk[:-1], chunk[1:])).as_py() is not False for chunk in chunks)


def collect_files(files: Iterable[SourceFile]) -> SourceFiles:
    """Files as columns; those that are in columns already stay as they are."""
    if isinstance(files, SourceFiles):
        return files
    listed = list(files)
    return SourceFiles(
        pa.table({name: pa.array([getattr(file, name) for file in listed], COLUMNS.field(name).type) for name in COLUMNS.names})
    )


def source_summaries(sources: Mapping[str, Sequence[SourceFile]]) -> dict[str, SourceSummary]:
    """The summary of each table, for the manifest."""
    summaries = {}
    for table, listed in sources.items():
        files, digest = collect_files(listed), sha256()
        for batch in files.ordered.to_batches(BATCH_ROWS):
            digest.update(_json_lines(batch))
        summaries[table] = SourceSummary(files=len(files), bytes=files.bytes, digest=digest.hexdigest())
    return summaries


def _json_lines(batch: pa.RecordBatch) -> bytes:
    """Each file as a line of JSON, a list of path, bytes and checksum: a path may contain any character."""
    texts = [batch["path"], batch["checksum"]]
    if not all(pc.all(pc.match_substring_regex(text, _PLAIN)).as_py() for text in texts):
        rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        return b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    path, checksum = texts
    opening, comma, last_comma, closing, nothing = (pa.scalar(text, pa.large_string()) for text in ('["', '", ', ', "', '"]\n', ""))
    size = batch["bytes"].cast(pa.string()).cast(pa.large_string())
    lines = pc.binary_join_element_wise(opening, path, comma, size, last_comma, checksum, closing, nothing)
    _, offsets, content = lines.buffers()
    return bytes(memoryview(content)[: int(np.frombuffer(offsets, np.int64)[len(lines)])])


def write_sources(filesystem: FileSystem, path: str, sources: Mapping[str, Sequence[SourceFile]]) -> str:
    """Write the list of all tables' files and return its checksum."""
    batches = chain.from_iterable(_list_batches(table, files) for table, files in sources.items())
    return write_table(filesystem, path, _LIST, batches, ["table"])


def _list_batches(table: str, files: Sequence[SourceFile]) -> Iterator[pa.RecordBatch]:
    for batch in collect_files(files).table.to_batches(BATCH_ROWS):
        names = pa.array([table] * len(batch), pa.string())
        yield pa.RecordBatch.from_arrays(
            [names, *(column.cast(field.type) for column, field in zip(batch.columns, list(_LIST)[1:], strict=True))], schema=_LIST
        )


def read_sources(filesystem: FileSystem, path: str, expected_checksum: str) -> Sources:
    """The tables that have files. Raises CorruptError if the file's checksum is not `expected_checksum`."""
    pieces: dict[str, list[Any]] = {}
    for batch in read_batches(filesystem, path, _LIST, expected_checksum):
        for table in pc.unique(batch["table"]).to_pylist():
            rows = batch.filter(pc.equal(batch["table"], table))
            pieces.setdefault(table, []).append(rows.select(COLUMNS.names))
    return {table: SourceFiles(pa.Table.from_batches(batches)) for table, batches in pieces.items()}
