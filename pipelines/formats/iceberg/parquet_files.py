"""Opens Parquet files of a table, of data and of deletes, and reads the table's columns of them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import NestedField

from pipelines.errors import SourceError
from pipelines.formats.iceberg.opening import Place, table_file_errors
from pipelines.formats.iceberg.projection import FileField, Projection, file_fields


@dataclass(frozen=True)
class OpenFile:
    """An open Parquet file of the table."""

    path: str
    parquet: pq.ParquetFile
    fields: tuple[FileField, ...]
    projection: Projection

    def batches(self, columns: Sequence[NestedField], groups: Sequence[int], keep: np.ndarray | None = None) -> Iterator[list[pa.Array]]:
        """The table's `columns` of some row groups, in the order of the file's rows, of those rows that `keep` has if it is given."""
        ids = {field.field_id for field in columns}
        sources = [field for field in self.fields if field.field_id in ids]
        first = 0
        for arrays, rows in self._source_batches([source.name for source in sources], groups):
            mask = np.ones(rows, np.bool_) if keep is None else keep[first : first + rows]
            first += rows
            kept_arrays = arrays if mask.all() else [array.filter(pa.array(mask)) for array in arrays]
            if kept_rows := int(np.count_nonzero(mask)):
                yield [self.projection.column(column, sources, kept_arrays, kept_rows) for column in columns]

    def _source_batches(self, names: Sequence[str], groups: Sequence[int]) -> Iterator[tuple[list[pa.Array], int]]:
        if not names:  # all columns came after the file
            yield from (([], self.parquet.metadata.row_group(group).num_rows) for group in groups)
            return
        for batch in self.parquet.iter_batches(row_groups=list(groups), columns=list(names)):
            yield [batch.column(name) for name in names], batch.num_rows

    def groups_between(self, start: int, stop: int | None) -> tuple[list[int], int, int]:
        """The row groups that begin in bytes [start, stop), the number of their first row in the file, and how many rows they have."""
        groups, first, rows, rows_before = list[int](), 0, 0, 0
        metadata = self.parquet.metadata
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            column = group.column(0)
            begin = min(column.data_page_offset, column.dictionary_page_offset or column.data_page_offset)
            if start <= begin and (stop is None or begin < stop):
                first = first if groups else rows_before
                groups.append(number)
                rows += group.num_rows
            rows_before += group.num_rows
        return groups, first, rows


@dataclass(frozen=True)
class TableFiles:
    """Opens the files of a snapshot, in any process."""

    io: FileIO
    place: Place
    snapshot_id: int
    mapping: NameMapping | None

    @contextmanager
    def open(
        self, path: str, records: int, constants: Mapping[int, Any] = MappingProxyType({}), mapping: NameMapping | None = None
    ) -> Iterator[OpenFile]:
        """A file at `path`, as the table names it. Fields that it lacks have the `constants`, by their IDs; if none has an ID, they have
        those of the `mapping`, by default the table's. Raises SourceError if the file cannot be read, or if it has another number of rows
        than `records`, which its manifest says."""
        actual_path = self.place.resolve(path)
        with table_file_errors(actual_path), self.io.new_input(actual_path).open() as stream:
            with pq.ParquetFile(stream, coerce_int96_timestamp_unit="us") as parquet:
                if parquet.metadata.num_rows != records:
                    raise SourceError(
                        f"{actual_path} has {parquet.metadata.num_rows:,} rows, and its manifest in snapshot {self.snapshot_id} says "
                        f"{records:,}: it was written over; restore it, or name another snapshot"
                    )
                fields = file_fields(parquet.schema_arrow, mapping or self.mapping, actual_path)
                yield OpenFile(actual_path, parquet, fields, Projection(actual_path, constants))
