"""The deleted rows of data files: by their positions, in files or in vectors, and by the values of some columns."""

from collections.abc import Mapping, Sequence
from struct import unpack
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.types import LongType, NestedField, StringType
from pyroaring import BitMap64

from pipelines.config.messages.words import name_list
from pipelines.errors import SourceError
from pipelines.formats.iceberg.columns import arrow_type
from pipelines.formats.iceberg.key_sets import KeySet
from pipelines.formats.iceberg.manifests import PATH_FIELD_ID, Entry
from pipelines.formats.iceberg.opening import table_file_errors
from pipelines.formats.iceberg.parquet_files import OpenFile, TableFiles
from pipelines.formats.iceberg.planning import EqualityGroup, PlannedFile

_MAGIC = b"\xd1\xd3\x39\x64"
_POSITION_FIELDS = (NestedField(PATH_FIELD_ID, "file_path", StringType(), True), NestedField(2147483545, "pos", LongType(), True))
_POSITION_NAMES = NameMapping([MappedField(field_id=field.field_id, names=[field.name]) for field in _POSITION_FIELDS])
_MOST_CACHED = 32
"""Files of position deletes, and groups of equality deletes, that a task keeps: data files that follow each other share them."""


class Deletes:
    """Finds the deleted rows of the data files of one task. Delete files are read once where they fit."""

    def __init__(
        self,
        files: TableFiles,
        keys: Mapping[int, NestedField],
        equality_deletes: Mapping[EqualityGroup, Sequence[Entry]],
        data_files: Sequence[PlannedFile],
    ) -> None:
        """`keys` has the column that each field is or is in, by which equality deletes go, without the fields beside it."""
        self._files, self._keys, self._equality_deletes = files, keys, equality_deletes
        self._oldest = min((file.sequence for file in data_files), default=0)
        self._key_sets: dict[EqualityGroup, KeySet] = {}
        self._positions: dict[str, tuple[pa.ChunkedArray, np.ndarray]] = {}

    def row_mask(self, planned: PlannedFile, file: OpenFile, groups: Sequence[int], first: int, rows: int) -> np.ndarray:
        """Whether each row of some row groups, whose first has the number `first` in the file, is left. Raises SourceError for a delete
        file that cannot be read, or that deletes a row that the file has not."""
        keep = np.ones(rows, np.bool_)
        for entry in (*([planned.vector] if planned.vector else ()), *planned.position_deletes):
            positions = self._vector(entry) if entry.offset is not None else self._positions_in(entry, planned.path)
            if len(positions) and not 0 <= positions.min() <= positions.max() < planned.records:
                raise SourceError(
                    f"{entry.path} deletes row {positions.max():,} of {planned.path}, which has {planned.records:,}; name another snapshot"
                )
            keep[positions[(positions >= first) & (positions < first + rows)] - first] = False
        for group in planned.equality_groups:
            keep &= ~self._key_set(group).deletes(self._key_columns(file, group[0], groups), planned.sequence)
        return keep

    def _vector(self, entry: Entry) -> np.ndarray:
        path = self._files.place.resolve(entry.path)
        with table_file_errors(path), self._files.io.new_input(path).open() as stream:
            stream.seek(entry.offset or 0)
            return vector_positions(stream.read(entry.size or 0), path, entry.records)

    def _positions_in(self, entry: Entry, stated_path: str) -> np.ndarray:
        """The positions that a file of position deletes has for a data file."""
        if entry.path not in self._positions:
            with self._files.open(entry.path, entry.records, mapping=_POSITION_NAMES) as file:
                batches = list(file.batches(_POSITION_FIELDS, range(file.parquet.metadata.num_row_groups)))
            paths = pa.chunked_array([batch[0] for batch in batches], pa.string())
            positions = pa.chunked_array([batch[1] for batch in batches], pa.int64())
            _keep_few(self._positions)
            self._positions[entry.path] = paths, positions.to_numpy()
        paths, numbers = self._positions[entry.path]
        return numbers[pc.equal(paths, stated_path).to_numpy()]

    def _key_set(self, group: EqualityGroup) -> KeySet:
        """The keys of a group, from those of its files that may be about data of this task."""
        if group not in self._key_sets:
            entries = [entry for entry in self._equality_deletes[group] if entry.sequence > self._oldest]
            parts = [self._delete_keys(entry) for entry in entries]
            columns = [
                pa.chunked_array([chunk for part in column for chunk in part.chunks], column[0].type) for column in zip(*parts, strict=True)
            ]
            _keep_few(self._key_sets)
            self._key_sets[group] = KeySet(columns, np.repeat([entry.sequence for entry in entries], [entry.records for entry in entries]))
        return self._key_sets[group]

    def _delete_keys(self, entry: Entry) -> list[pa.ChunkedArray]:
        """The columns of an equality delete file, in the order of its IDs."""
        with self._files.open(entry.path, entry.records) as file:
            file_ids = {field_id for field in file.fields for field_id in field.ids()}
            if missing := [self._keys[field_id].name for field_id in entry.equality_ids if field_id not in file_ids]:
                raise SourceError(f"{file.path} lacks {name_list(missing)}, by which its manifest says that it deletes; compact the table")
            return self._key_columns(file, entry.equality_ids, range(file.parquet.metadata.num_row_groups))

    def _key_columns(self, file: OpenFile, ids: Sequence[int], groups: Sequence[int]) -> list[pa.ChunkedArray]:
        fields = [self._keys[field_id] for field_id in ids]
        batches = [[_leaf(array) for array in arrays] for arrays in file.batches(fields, groups)]
        return [pa.chunked_array([batch[place] for batch in batches], _leaf_type(field)) for place, field in enumerate(fields)]


def vector_positions(blob: bytes, path: str, records: int) -> np.ndarray:
    """The positions of a deletion vector, from its blob in a Puffin file: the length of magic and bitmap, these, and their CRC-32. Raises
    SourceError if the blob is damaged, or holds another number of positions than `records`."""
    length = unpack(">I", blob[:4])[0] if len(blob) >= 12 else 0
    magic, bitmap, checksum = blob[4:8], blob[8 : 4 + length], blob[4 + length :]
    if length + 8 != len(blob) or magic != _MAGIC or unpack(">I", checksum)[0] != crc32(magic + bitmap):
        raise SourceError(f"{path}: the deletion vector is damaged; restore the file, or name an earlier snapshot")
    positions = np.fromiter(BitMap64.deserialize(bitmap), np.int64)
    if len(positions) != records:
        raise SourceError(
            f"{path}: the deletion vector has {len(positions):,} positions, and the manifest says {records:,}; name an earlier snapshot"
        )
    return positions


def _keep_few(cached: dict[Any, Any]) -> None:
    if len(cached) >= _MOST_CACHED:
        cached.clear()


def _leaf(array: pa.Array) -> pa.Array:
    """The only field inside structs of one field each."""
    while pa.types.is_struct(array.type):
        array = pc.struct_field(array, 0)
    return array


def _leaf_type(field: NestedField) -> pa.DataType:
    kind = arrow_type(field.field_type)
    while pa.types.is_struct(kind):
        kind = kind.field(0).type
    return kind
