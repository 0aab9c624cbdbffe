"""Reads the rows of data files that are not deleted."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from pipelines.data.sources.files.files import OPEN_BYTES
from pipelines.errors import SourceError
from pipelines.formats.iceberg.columns import row_schema
from pipelines.formats.iceberg.deletes import Deletes
from pipelines.formats.iceberg.manifests import Entry
from pipelines.formats.iceberg.parquet_files import TableFiles
from pipelines.formats.iceberg.planning import EqualityGroup, PlannedFile

_CHUNK_BYTES = 64 * 2**20
"""A larger data file is read in pieces of about this size, by several tasks."""


@dataclass(frozen=True)
class Piece:
    """The row groups of a data file that begin in bytes [start, stop)."""

    file: PlannedFile
    start: int
    stop: int | None
    """None of the last piece, which has all groups from `start`."""


def cut_files(files: Sequence[PlannedFile], task_bytes: int) -> list[list[Piece]]:
    """The pieces of all files, in lists that cost about `task_bytes` each: the work of a task."""
    step = min(max(task_bytes, 1), _CHUNK_BYTES)
    tasks: list[list[Piece]] = []
    room = 0
    for file in files:
        starts = range(0, max(file.bytes, 1), step)
        for start in starts:
            cost = min(step, max(file.bytes - start, 0)) + OPEN_BYTES
            if not tasks or cost > room:
                tasks.append([])
                room = task_bytes + OPEN_BYTES
            tasks[-1].append(Piece(file, start, None if start == starts[-1] else start + step))
            room -= cost
    return tasks


@dataclass(frozen=True)
class DataFileReader:
    """Reads data files of a snapshot, in any process."""

    files: TableFiles
    schema: Schema
    equality_deletes: Mapping[EqualityGroup, Sequence[Entry]]
    keys: Mapping[int, NestedField]
    """Of each field by which equality deletes go: the column that it is, or is in, without the fields beside it."""

    def __call__(self, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
        """The rows that are left of some pieces. Raises SourceError for a file that is missing, or not as the manifests say."""
        deletes = Deletes(self.files, self.keys, self.equality_deletes, [piece.file for piece in pieces])
        for piece in pieces:
            yield from self._read(piece, deletes)

    def _read(self, piece: Piece, deletes: Deletes) -> Iterator[pa.RecordBatch]:
        schema = row_schema(self.schema)
        with self.files.open(piece.file.path, piece.file.records, piece.file.constants) as file:
            groups, first, rows = file.groups_between(piece.start, piece.stop)
            if not groups:
                return
            keep = deletes.row_mask(piece.file, file, groups, first, rows)
            expected, count = int(np.count_nonzero(keep)), 0
            for arrays in file.batches(self.schema.fields, groups, keep):
                batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
                count += batch.num_rows
                yield batch
            if count != expected:
                raise SourceError(f"{file.path} gave {count:,} rows of {expected:,} that are not deleted; restore the file")
