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

BATCH_ROWS = 2**14
"""Row groups that are converted at once."""
PICKLED_BYTES = 2**20
"""Columns up to this size travel in a pickle. Larger ones are read again from their file, by whoever unpickles them."""
_PART = ("split", "part", "file", "footer_offset", "footer_checksum")
"""Columns that the row groups of a file have in common."""
_OWN = tuple(name for name in ROW_GROUPS.names if name not in _PART)
_HEX = ("checksum", "digest")
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_TWO_DIGITS = np.stack([np.repeat(_DIGITS, 16), np.tile(_DIGITS, 16)], axis=1)
"""Hexadecimal digits of each byte, uint8 of shape (256, 2)."""
_VALUES = np.full(256, 255, np.uint8)
"""Value of each hexadecimal digit, by its character; 255 for any other character."""
_VALUES[_DIGITS] = np.arange(16)


@dataclass(frozen=True)
class Columns:
    parts: pa.Table
    """One row for each file, or for each run of row groups of one: the columns of ROW_GROUPS that they have in common."""
    own: pa.Table
    """One row for each row group: `place`, its row in `parts` as int32, and the other columns. Checksums and digests are bytes, unless one
    is not of hexadecimal digits."""

    @property
    def nbytes(self) -> int:
        return int(self.parts.nbytes + self.own.nbytes)


def compact(batches: Iterable[pa.RecordBatch]) -> Columns:
    """The columns of batches of ROW_GROUPS, which are read once."""
    parts: list[pa.RecordBatch] = []
    own: dict[str, list[pa.Array]] = {name: [] for name in ("place", *_OWN)}
    count = 0
    for batch in batches:
        begins = _part_begins(batch)
        parts.append(batch.select(list(_PART)).take(as_arrow(np.flatnonzero(begins))))
        own["place"].append(as_arrow(np.cumsum(begins, dtype=np.int32) + np.int32(count - 1)))
        for name in _OWN:
            own[name].append(_pack(batch[name]) if name in _HEX else batch[name])
        count += int(begins.sum())
    schema = pa.schema([ROW_GROUPS.field(name) for name in _PART])
    columns = {name: _join(arrays, pa.int32() if name == "place" else ROW_GROUPS.field(name).type) for name, arrays in own.items()}
    return Columns(pa.Table.from_batches(parts, schema).combine_chunks(), pa.table(columns))


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
        return self._numbers("rows")

    @property
    def stored_rows(self) -> np.ndarray:
        """Rows of each in its file, int64 of shape (row groups,)."""
        return self.rows

    @property
    def bytes(self) -> int:
        """Bytes of all of them in their files."""
        return int(self._numbers("bytes").sum())

    @property
    def splits(self) -> set[str]:
        return set(self._used_parts()["split"].to_pylist())

    @property
    def part(self) -> np.ndarray:
        """Number of each one's part within its split, int64 of shape (row groups,)."""
        return as_numpy(self.columns.parts["part"])[self._numbers("place")]

    @property
    def files(self) -> list[str]:
        """The different files, relative to the version."""
        return list(pc.unique(self._used_parts()["file"]).to_pylist())

    def select_split(self, split: str) -> Self:
        """The row groups of a split in (part, index) order."""
        place = self._numbers("place")
        is_in_split = np.array([name == split for name in self.columns.parts["split"].to_pylist()], bool)[place]
        first, count = int(is_in_split.argmax()) if len(place) else 0, int(is_in_split.sum())
        if is_in_split[first : first + count].all():  # as ETL writes them: they share the memory of all
            selected = self._like(self.columns.own.slice(first, count))
        else:
            selected = self._take(np.flatnonzero(is_in_split))
        part, index = selected.part, selected._numbers("index")
        step = np.diff(part)
        if ((step > 0) | ((step == 0) & (np.diff(index) >= 0))).all():
            return selected
        return selected._take(np.lexsort((index, part)))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The row groups as batches of ROW_GROUPS."""
        for start in range(0, len(self), BATCH_ROWS):
            own = self.columns.own.slice(start, BATCH_ROWS).combine_chunks()
            parts = self.columns.parts.take(own["place"]).combine_chunks()
            columns = [_only_chunk(parts[name]) if name in _PART else _unpack(_only_chunk(own[name])) for name in ROW_GROUPS.names]
            yield pa.RecordBatch.from_arrays(columns, schema=ROW_GROUPS)

    def __len__(self) -> int:
        return int(self.columns.own.num_rows)

    @overload
    def __getitem__(self, number: int) -> RowGroup: ...

    @overload
    def __getitem__(self, number: slice) -> Self: ...

    def __getitem__(self, number: int | slice) -> RowGroup | Self:
        if isinstance(number, slice):
            start, stop, step = number.indices(len(self))
            if step != 1:
                return self._take(np.arange(start, stop, step))
            return self._like(self.columns.own.slice(start, max(stop - start, 0)))
        if not -len(self) <= number < len(self):
            raise IndexError(f"row group {number} of {len(self)}")
        number = number % len(self)
        parts, own = self.columns.parts, self.columns.own
        place = own["place"][number].as_py()
        values = {name: parts[name][place].as_py() for name in _PART} | {name: own[name][number].as_py() for name in _OWN}
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

    def _like(self, own: pa.Table) -> Self:
        """The row groups of these rows of `own`."""
        return type(self)(Columns(self.columns.parts, own))

    def _take(self, numbers: np.ndarray) -> Self:
        return self._like(self.columns.own.take(as_arrow(numbers)))

    def _numbers(self, name: str) -> np.ndarray:
        return as_numpy(self.columns.own[name])

    def _used_parts(self) -> pa.Table:
        return self.columns.parts.take(as_arrow(np.unique(self._numbers("place"))))


def collect_row_groups(groups: Iterable[RowGroup]) -> RowGroups:
    """Row groups as columns; those that are in columns already stay as they are."""
    if isinstance(groups, RowGroups):
        return groups
    listed = list(groups)
    columns = {field.name: pa.array([getattr(group, field.name) for group in listed], field.type) for field in ROW_GROUPS}
    return RowGroups(compact(pa.table(columns, ROW_GROUPS).to_batches(BATCH_ROWS)))


def join_row_groups(pieces: Iterable[RowGroups]) -> RowGroups:
    """The row groups of all pieces, one piece after the other."""
    return RowGroups(compact(batch for piece in pieces for batch in piece.batches()))


def as_arrow(values: np.ndarray) -> pa.Array:
    """Numbers of shape (rows,) as Arrow. `pa.array` would import pandas, which takes a worker longer than all that it reads of an index."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def as_numpy(values: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """A column of numbers without NULLs, shape (rows,), without pandas as well."""
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    pieces = [np.from_dlpack(chunk) for chunk in chunks if len(chunk)]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces or [np.zeros(0, np.int64)])


def _part_begins(batch: pa.RecordBatch) -> np.ndarray:
    """Whether each row group differs from the one before it in a column of its part, bool of shape (row groups,)."""
    rows = batch.num_rows
    begins = np.zeros(rows, bool)
    begins[:1] = True
    for name in _PART if rows > 1 else ():
        values = batch[name]
        begins[1:] |= as_numpy(pc.not_equal(values.slice(1), values.slice(0, rows - 1)).cast(pa.uint8())).astype(bool)
    return begins


def _pack(texts: pa.Array) -> pa.Array:
    """Lower-case hexadecimal numbers of one length as bytes; any other texts as they are."""
    rows = len(texts)
    digits = len(texts[0].as_py()) if rows else 0
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + rows + 1] if rows else np.zeros(1, np.int32)
    if not digits or digits % 2 or (np.diff(offsets) != digits).any():
        return texts
    characters = np.frombuffer(texts.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    values = _VALUES[characters]
    if values.max() > 15:
        return texts
    packed = (values[::2] << 4) | values[1::2]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(digits // 2), rows, [None, pa.py_buffer(packed)])


def _unpack(values: pa.Array) -> pa.Array:
    """The texts that `_pack` was given."""
    if not pa.types.is_fixed_size_binary(values.type):
        return values
    rows, width = len(values), values.type.byte_width
    packed = np.frombuffer(values.buffers()[1], np.uint8)[values.offset * width : (values.offset + rows) * width]
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(2 * width)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(_TWO_DIGITS[packed].reshape(-1)))


def _join(arrays: list[pa.Array], kind: pa.DataType) -> pa.ChunkedArray:
    """Arrays as one column, of `kind` if there are none: if only some of them are packed, none is."""
    if len({array.type for array in arrays}) > 1:
        arrays = [_unpack(array) for array in arrays]
    return pa.chunked_array(arrays, arrays[0].type if arrays else kind)


def _only_chunk(column: pa.ChunkedArray) -> pa.Array:
    """The values of a column that has been combined."""
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)
