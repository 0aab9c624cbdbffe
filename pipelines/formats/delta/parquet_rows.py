"""Reads the rows of data files that a version has, in a task or on the driver."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as T

from pipelines.data.sources.files.content import file_errors, open_file
from pipelines.data.sources.files.files import OPEN_BYTES
from pipelines.errors import SourceError
from pipelines.formats.delta.columns import file_column, rows_to_keep, to_table_type
from pipelines.formats.delta.snapshot import DataFile

_BATCH_BYTES, _BATCH_ROWS = 16 * 2**20, 2**16
"""Most bytes, uncompressed and about, and rows that are read at once."""


@dataclass(frozen=True)
class FilePart:
    """Some row groups of a file: part `number` of `count`, which are about equal."""

    file: DataFile
    number: int
    count: int


@dataclass(frozen=True)
class RowReader:
    """Reads parts of files as batches of the table's columns. Travels by pickle."""

    table: str
    """How messages name the version."""
    columns: T.StructType
    mapping: str
    schema: pa.Schema
    """The columns in Arrow's types."""

    def __call__(self, parts: Sequence[FilePart]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            yield from self.read(part)

    def read(self, part: FilePart) -> Iterator[pa.RecordBatch]:
        """The rows that are not deleted. Raises SourceError if the file is gone or damaged, or has other rows than the log says."""
        path = part.file.path
        try:
            stream = open_file(path)
        except FileNotFoundError as error:
            raise SourceError(
                f"{path} is gone, which {self.table} consists of, as after a VACUUM; name a later version, or leave out version and "
                "timestamp for the latest"
            ) from error
        with file_errors(path), stream, pq.ParquetFile(stream, coerce_int96_timestamp_unit="us") as file:
            self._check_rows(part.file, file.metadata.num_rows)
            yield from self._batches(part, file)

    def _check_rows(self, file: DataFile, rows: int) -> None:
        last_deleted = -1 if file.deleted is None or not len(file.deleted) else int(file.deleted[-1])
        if rows != (rows if file.rows is None else file.rows) or rows <= last_deleted:
            log_rows = f"{file.rows:,}" if file.rows is not None else f"at least {last_deleted + 1:,}"
            raise SourceError(
                f"{file.path} has {rows:,} rows, and the log of {self.table} says {log_rows}; restore the file, or write the table again"
            )

    def _batches(self, part: FilePart, file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
        metadata, fields = file.metadata, list(file.schema_arrow)
        groups = range(metadata.num_row_groups * part.number // part.count, metadata.num_row_groups * (part.number + 1) // part.count)
        position = sum(metadata.row_group(number).num_rows for number in range(groups.start))
        end = position + sum(metadata.row_group(number).num_rows for number in groups)
        places = {field.name: file_column(fields, field, self.mapping) for field in self.columns if field.name not in part.file.partition}
        names = [fields[place].name for place in places.values() if place is not None]
        group_bytes = sum(metadata.row_group(number).total_byte_size for number in groups)
        batch_rows = min(_BATCH_ROWS, max(1, _BATCH_BYTES * (end - position) // max(group_bytes, 1)))
        for batch in file.iter_batches(batch_rows, row_groups=list(groups), columns=names) if groups else ():
            mask = rows_to_keep(part.file.deleted, position, batch.num_rows)
            position += batch.num_rows
            rows = batch if mask is None else batch.filter(mask)
            if rows.num_rows:
                yield self._to_columns(rows, part.file, fields, places)
        if position != end:
            raise SourceError(f"{part.file.path} has fewer rows than its footer says; restore the file, or write the table again")

    def _to_columns(self, rows: pa.RecordBatch, file: DataFile, fields: list[pa.Field], places: dict[str, int | None]) -> pa.RecordBatch:
        arrays = []
        for field, target in zip(self.columns, self.schema, strict=True):
            place = places.get(field.name)
            if field.name in file.partition:
                arrays.append(constant(file.partition[field.name], rows.num_rows, target.type))
            elif place is None:
                arrays.append(pa.nulls(rows.num_rows, target.type))
            else:
                array = rows.column(rows.schema.names.index(fields[place].name))
                arrays.append(to_table_type(array, field.dataType, target.type, self.mapping, field.name))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def constant(value: Any, rows: int, kind: pa.DataType) -> pa.Array:
    return pa.nulls(rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), rows)


def file_parts(files: Sequence[DataFile], task_bytes: int) -> list[list[FilePart]]:
    """All parts of the files, in lists of about `task_bytes` each; large files are cut into parts of that size."""
    lists: list[list[FilePart]] = []
    room = 0
    for file in files:
        count = max(1, file.bytes // task_bytes)
        for number in range(count):
            cost = file.bytes // count + OPEN_BYTES
            if not lists or cost > room:
                lists.append([])
                room = task_bytes
            lists[-1].append(FilePart(file, number, count))
            room -= cost
    return lists
