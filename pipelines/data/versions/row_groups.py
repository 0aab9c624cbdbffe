"""The row groups of a version as columns, from which single ones are made on demand.

A version of 16 TB has a million of them, in a hundred thousand files. As Python objects they would take 650 MB; as columns they take 90
bytes each. What all row groups of a file have in common is kept once, and hexadecimal digits as the bytes that they stand for. Selections
of a split share the columns of all."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.data.versions.parts import ROW_GROUPS, RowGroup

BATCH_ROWS = 2**13
"""Row groups that are converted at once."""
PICKLED_BYTES = 2**20
"""Columns up to this size travel in a pickle. Larger ones are read again from their file, by whoever unpickles them."""
PART_COLUMNS = ("split", "part", "file", "footer_offset", "footer_checksum")
"""Columns that the row groups of a file have in common."""
_GROUP_COLUMNS = tuple(name for name in ROW_GROUPS.names if name not in PART_COLUMNS)
_HEX = ("checksum", "digest")
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_TWO_DIGITS = np.stack([np.repeat(_DIGITS, 16), np.tile(_DIGITS, 16)], axis=1).reshape(-1).view(np.uint16)
"""Both hexadecimal digits of each byte, as the bytes of one number; of shape (256,)."""
_VALUES = np.full(256, 255, np.uint8)
"""Value of each hexadecimal digit, by its character; 255 for any other character."""
_VALUES[_DIGITS] = np.arange(16)


@dataclass(frozen=True)
class Columns:
    parts: pa.Table
    """One row for each file, or for each run of row groups of one: the columns of ROW_GROUPS that they have in common."""
    group_columns: pa.Table
    """One row for each row group: `place`, its row in `parts` as int32, and the other columns. Checksums and digests are bytes, unless one
    is not of hexadecimal digits."""

    @property
    def nbytes(self) -> int:
        return int(self.parts.nbytes + self.group_columns.nbytes)


def compact(batches: Iterable[pa.RecordBatch], rows: int) -> Columns:
    """The columns of batches of ROW_GROUPS with `rows` rows in all. Each batch is read once, and nothing is copied again: what a worker
    holds at most is little more than what it keeps."""
    parts: list[pa.RecordBatch] = []
    place = np.empty(rows, np.int32)
    numbers = {name: np.empty(rows, np.int64) for name in _GROUP_COLUMNS if name not in _HEX}
    texts = {name: _HexTexts(rows) for name in _HEX}
    start = count = 0
    for batch in batches:
        begins, end = _part_begins(batch), start + len(batch)
        parts.append(batch.select(list(PART_COLUMNS)).take(as_arrow(np.flatnonzero(begins))))
        place[start:end] = np.cumsum(begins, dtype=np.int32) + np.int32(count - 1)
        for name, values in numbers.items():
            values[start:end] = as_numpy(batch[name])
        for name, column in texts.items():
            column.append(batch[name])
        start, count = end, count + int(begins.sum())
    group_columns = {"place": as_arrow(place)} | {
        name: texts[name].column() if name in _HEX else as_arrow(numbers[name]) for name in _GROUP_COLUMNS
    }
    schema = pa.schema([ROW_GROUPS.field(name) for name in PART_COLUMNS])
    return Columns(pa.Table.from_batches(parts, schema), pa.table(group_columns))


class _HexTexts:
    """A column of texts, kept as bytes for as long as all of them are lower-case hexadecimal numbers of one length."""

    def __init__(self, rows: int) -> None:
        self._rows, self._end = rows, 0
        self._packed: np.ndarray | None = None
        self._texts: list[pa.Array] = []

    def append(self, texts: pa.Array) -> None:
        packed = None if self._texts else _pack(texts)
        if packed is not None and self._packed is None and not self._end:
            self._packed = np.empty((self._rows, packed.shape[1]), np.uint8)
        if packed is not None and self._packed is not None and packed.shape[1] == self._packed.shape[1]:
            self._packed[self._end : self._end + len(texts)] = packed
        else:
            if self._packed is not None:
                self._texts, self._packed = [_unpack(self._packed[: self._end])], None
            self._texts.append(texts)
        self._end += len(texts)

    def column(self) -> pa.ChunkedArray:
        if self._packed is None:
            return pa.chunked_array(self._texts, pa.string())
        buffers = [None, pa.py_buffer(self._packed)]
        return pa.chunked_array([pa.FixedSizeBinaryArray.from_buffers(pa.binary(self._packed.shape[1]), self._rows, buffers)])


class RowGroups(Sequence[RowGroup]):
    """Row groups in the order of an index. Iteration and `[number]` make RowGroups' values; slices share the columns."""

    def __init__(self, columns: Columns | None, read: Callable[[], Columns] | None = None) -> None:
        """`read` reads the columns from their file. It travels by pickle, and is called at the first use if `columns` is None."""
        self._columns, self._read = columns, read

    @property
    def columns(self) -> Columns:
        if self._columns is None:
            assert self._read is not None, "there are columns, or a file that has them"
            self._columns = self._read()
        return self._columns

    @cached_property
    def rows(self) -> np.ndarray:
        """Rows of each, int64 of shape (row groups,)."""
        return self.column_numbers("rows")

    @property
    def stored_rows(self) -> np.ndarray:
        """Rows of each in its file, int64 of shape (row groups,)."""
        return self.rows

    @property
    def bytes(self) -> int:
        """Bytes of all of them in their files."""
        return int(self.column_numbers("bytes").sum())

    @property
    def splits(self) -> set[str]:
        return set(self._distinct("split"))

    @property
    def part(self) -> np.ndarray:
        """Number of each one's part within its split, int64 of shape (row groups,)."""
        return as_numpy(self.columns.parts["part"])[self.column_numbers("place")]

    @property
    def files(self) -> list[str]:
        """The different files, relative to the version."""
        return self._distinct("file")

    def select_split(self, split: str) -> Self:
        """The row groups of a split in (part, index) order."""
        place = self.column_numbers("place")
        is_in_split = as_numpy(pc.equal(self.columns.parts["split"], text_scalar(split)).cast(pa.uint8())).astype(bool)[place]
        first, count = int(is_in_split.argmax()) if len(place) else 0, int(is_in_split.sum())
        if is_in_split[first : first + count].all():  # as ETL writes them: they share the memory of all
            selected = self._like(self.columns.group_columns.slice(first, count))
        else:
            selected = self.take(np.flatnonzero(is_in_split))
        if selected.is_ordered():
            return selected
        return selected.take(np.lexsort((selected.column_numbers("index"), selected.part)))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The row groups as batches of ROW_GROUPS."""
        for start in range(0, len(self), BATCH_ROWS):
            group_columns = self.columns.group_columns.slice(start, BATCH_ROWS).combine_chunks()
            place = as_numpy(group_columns["place"])
            first, last = int(place.min()), int(place.max())
            parts = self.columns.parts.slice(first, last - first + 1).take(as_arrow(place - np.int32(first))).combine_chunks()
            columns = [
                _only_chunk(parts[name]) if name in PART_COLUMNS else _hex_texts(_only_chunk(group_columns[name]))
                for name in ROW_GROUPS.names
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=ROW_GROUPS)

    def __len__(self) -> int:
        return int(self.columns.group_columns.num_rows)

    @overload
    def __getitem__(self, number: int) -> RowGroup: ...

    @overload
    def __getitem__(self, number: slice) -> Self: ...

    def __getitem__(self, number: int | slice) -> RowGroup | Self:
        if isinstance(number, slice):
            start, stop, step = number.indices(len(self))
            if step != 1:
                return self.take(np.arange(start, stop, step))
            return self._like(self.columns.group_columns.slice(start, max(stop - start, 0)))
        if not -len(self) <= number < len(self):
            raise IndexError(f"row group {number} of {len(self)}")
        number = number % len(self)
        parts, group_columns = self.columns.parts, self.columns.group_columns
        place = group_columns["place"][number].as_py()
        values = {name: parts[name][place].as_py() for name in PART_COLUMNS} | {
            name: group_columns[name][number].as_py() for name in _GROUP_COLUMNS
        }
        values |= {name: values[name].hex() for name in _HEX if isinstance(values[name], bytes)}
        return self._row_group(values, number)

    def __iter__(self) -> Iterator[RowGroup]:
        number = 0
        for batch in self.batches():
            for row in batch.to_pylist():
                yield self._row_group(row, number)
                number += 1

    def __reduce__(self) -> tuple[Any, ...]:
        if self._read is None:
            return RowGroups, (self.columns,)
        is_small = self._columns is not None and self._columns.nbytes <= PICKLED_BYTES
        return RowGroups, (self._columns if is_small else None, self._read)

    def _row_group(self, values: dict[str, Any], number: int) -> RowGroup:
        """The row group of this `number`, which has these values."""
        return RowGroup(**values)

    def _like(self, group_columns: pa.Table) -> Self:
        """The row groups of these rows of `group_columns`."""
        return type(self)(Columns(self.columns.parts, group_columns))

    def take(self, numbers: np.ndarray) -> Self:
        return self._like(self.columns.group_columns.take(as_arrow(numbers)))

    def is_ordered(self) -> bool:
        """Whether they are in (part, index) order. Looks at one batch after the other: arrays of all would be the peak of a worker."""
        part_numbers = as_numpy(self.columns.parts["part"])
        for start in range(0, len(self), BATCH_ROWS):
            group_columns = self.columns.group_columns.slice(start, BATCH_ROWS + 1)  # with the first one of the next batch
            step, index_step = np.diff(part_numbers[as_numpy(group_columns["place"])]), np.diff(as_numpy(group_columns["index"]))
            if not ((step > 0) | ((step == 0) & (index_step >= 0))).all():
                return False
        return True

    def column_numbers(self, name: str) -> np.ndarray:
        return as_numpy(self.columns.group_columns[name])

    def _distinct(self, name: str) -> list[Any]:
        """The different values of a column that the row groups of a file have in common."""
        is_used = np.zeros(len(self.columns.parts), bool)
        is_used[self.column_numbers("place")] = True
        return list(pc.unique(self.columns.parts[name].take(as_arrow(np.flatnonzero(is_used)))).to_pylist())


def collect_row_groups(groups: Iterable[RowGroup]) -> RowGroups:
    """Row groups as columns; those that are in columns already stay as they are."""
    if isinstance(groups, RowGroups):
        return groups
    listed = list(groups)
    columns = {field.name: pa.array([getattr(group, field.name) for group in listed], field.type) for field in ROW_GROUPS}
    return RowGroups(compact(pa.table(columns, ROW_GROUPS).to_batches(BATCH_ROWS), len(listed)))


def join_row_groups(pieces: Sequence[RowGroups]) -> RowGroups:
    """The row groups of all pieces, one piece after the other."""
    return RowGroups(compact((batch for piece in pieces for batch in piece.batches()), sum(map(len, pieces))))


def as_arrow(values: np.ndarray) -> pa.Array:
    """Numbers of shape (rows,) as Arrow. `pa.array` would import pandas, which takes a worker longer than all that it reads of an index."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def as_numpy(values: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """A column of numbers without NULLs, shape (rows,), without pandas as well."""
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    pieces = [np.from_dlpack(chunk) for chunk in chunks if len(chunk)]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces or [np.zeros(0, np.int64)])


def text_scalar(text: str) -> pa.Scalar:
    """A text for Arrow's functions, without pandas as well."""
    content = text.encode()
    return pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, len(content)], np.int32)), pa.py_buffer(content))[0]


def _part_begins(batch: pa.RecordBatch) -> np.ndarray:
    """Whether each row group differs from the one before it in a column of its part, bool of shape (row groups,)."""
    rows = batch.num_rows
    begins = np.zeros(rows, bool)
    begins[:1] = True
    for name in PART_COLUMNS if rows > 1 else ():
        values = batch[name]
        begins[1:] |= as_numpy(pc.not_equal(values.slice(1), values.slice(0, rows - 1)).cast(pa.uint8())).astype(bool)
    return begins


def _pack(texts: pa.Array) -> np.ndarray | None:
    """Lower-case hexadecimal numbers of one length as bytes, uint8 of shape (rows, bytes); None if the texts are others."""
    rows = len(texts)
    digits = len(texts[0].as_py()) if rows else 0
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + rows + 1] if rows else np.zeros(1, np.int32)
    if not digits or digits % 2 or (np.diff(offsets) != digits).any():
        return None
    values = _VALUES.take(np.frombuffer(texts.buffers()[2], np.uint8)[offsets[0] : offsets[-1]])
    return None if values.max() > 15 else ((values[::2] << 4) | values[1::2]).reshape(rows, -1)


def _unpack(packed: np.ndarray) -> pa.Array:
    """The texts that `_pack` was given."""
    rows, width = packed.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(2 * width)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(_TWO_DIGITS.take(packed.reshape(-1))))


def _hex_texts(values: pa.Array) -> pa.Array:
    """Texts of a column of Columns, which are bytes or texts there."""
    if not pa.types.is_fixed_size_binary(values.type):
        return values
    rows, width = len(values), values.type.byte_width
    packed = np.frombuffer(values.buffers()[1], np.uint8)[values.offset * width : (values.offset + rows) * width]
    return _unpack(packed.reshape(rows, width))


def _only_chunk(column: pa.ChunkedArray) -> pa.Array:
    """The values of a column that has been combined."""
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)
