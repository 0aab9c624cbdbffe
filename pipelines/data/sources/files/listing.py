"""Files as they were found, as columns: there may be ten million of them, and each would be an object of 400 bytes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.data.versions.checked_tables import BATCH_ROWS
from pipelines.data.versions.source_files import are_ascending

COLUMNS = pa.schema({"path": pa.large_string(), "bytes": pa.int64(), "modified": pa.timestamp("us", "UTC"), "folders": pa.large_string()})
"""Long texts: together they may have more than the 2 GiB that an array of short ones addresses."""


@dataclass(frozen=True, slots=True)
class File:
    """A file as it was found. `content.open_file` opens it on any machine."""

    path: str
    """Absolute, or a URI."""
    bytes: int
    modified: str
    """Modification time according to the file system; empty if it has none."""
    folders: str = ""
    """Those folders `column=value` that it lies in, below the table's path or below a folder that the path's glob matches."""


@dataclass(frozen=True)
class Range:
    """The lines that begin in bytes [start, stop) of a file."""

    file: File
    start: int
    stop: int


class Files(Sequence[File]):
    """Files as columns. Iteration and `[number]` make File's values; they are equal to a sequence of the same values."""

    def __init__(self, table: pa.Table) -> None:
        """`table` has the columns of COLUMNS, or shorter ones."""
        self.table = table.cast(COLUMNS)

    @property
    def sizes(self) -> np.ndarray:
        """Bytes of each."""
        return self.table["bytes"].to_numpy()

    @property
    def have_folders(self) -> bool:
        """Whether one lies in a folder `column=value`."""
        return bool(pc.any(pc.not_equal(self.table["folders"], "")).as_py())

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @overload
    def __getitem__(self, number: int) -> File: ...

    @overload
    def __getitem__(self, number: slice) -> Self: ...

    def __getitem__(self, number: int | slice) -> File | Self:
        if isinstance(number, slice):
            start, stop, step = number.indices(len(self))
            if step == 1:
                return type(self)(self.table.slice(start, max(stop - start, 0)))
            return type(self)(self.table.take(pa.array(np.arange(len(self))[number])))
        if not -len(self) <= number < len(self):
            raise IndexError(f"file {number} of {len(self)}")
        return next(iter(self[number % len(self) :][:1]))

    def __iter__(self) -> Iterator[File]:
        for start in range(0, len(self), BATCH_ROWS):
            paths, sizes, moments, folders = self.table.slice(start, BATCH_ROWS).columns
            yield from map(File, *(column.to_pylist() for column in (paths, sizes, iso_texts(moments), folders)))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Files):
            return bool(self.table.equals(other.table))
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(File.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]  # as of other sequences with equality


class WholeFiles(Sequence[Range]):
    """A range for each file, all of it."""

    def __init__(self, files: Sequence[File]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    @overload
    def __getitem__(self, number: int) -> Range: ...

    @overload
    def __getitem__(self, number: slice) -> "WholeFiles": ...

    def __getitem__(self, number: int | slice) -> "Range | WholeFiles":
        if isinstance(number, slice):
            return WholeFiles(self.files[number])
        return Range(file := self.files[number], 0, file.bytes)

    def __iter__(self) -> Iterator[Range]:
        return (Range(file, 0, file.bytes) for file in self.files)


def to_columns(files: Iterable[File]) -> Files:
    """Files as columns; those that are in columns already stay as they are."""
    if isinstance(files, Files):
        return files
    listed = list(files)
    moments = [datetime.fromisoformat(file.modified) if file.modified else None for file in listed]
    columns = [[file.path for file in listed], [file.bytes for file in listed], moments, [file.folders for file in listed]]
    return Files(pa.table([pa.array(values, field.type) for values, field in zip(columns, COLUMNS, strict=True)], COLUMNS))


def distinct(tables: Sequence[pa.Table]) -> Files:
    """The files of several listings, each once and in the order of paths; of a file in several of them, as the last has it."""
    table = pa.concat_tables([table.cast(COLUMNS) for table in tables])
    if not are_ascending(table["path"]):
        table = table.sort_by("path").combine_chunks()  # stable: of equal paths, the last listing's is the last
        path = table["path"].combine_chunks()
        is_last = pc.not_equal(path[:-1], path[1:])
        table = table.filter(pa.chunked_array([is_last, pa.array([True])]))
    return Files(table)


def iso_texts(moments: pa.ChunkedArray) -> pa.ChunkedArray:
    """Each moment as `datetime.isoformat` writes it; empty for NULL."""
    texts = moments.cast(pa.timestamp("us")).cast(pa.large_string())
    return pc.fill_null(pc.replace_substring_regex(pc.replace_substring(texts, " ", "T"), r"(\.000000)?$", "+00:00"), "")
