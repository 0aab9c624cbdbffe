"""The files of a snapshot, as its manifests list them.

pyiceberg's own reading leaves out the fields that deletion vectors need, so the entries are read with the schema of the third version of
the format, and inherit from their manifest here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyiceberg.avro.file import AvroFile
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    read_manifest_list,
)

from pipelines.errors import SourceError
from pipelines.formats.iceberg.opening import ENCRYPTED, Place, table_file_errors

_REFERENCED_FILE, _OFFSET, _SIZE = 17, 18, 19
"""Positions in a data file's entry of fields that pyiceberg's class gives no names."""
Bounds = tuple[bytes, bytes]
PATH_FIELD_ID = 2147483546
"""The field of a position delete file that names the data file."""


@dataclass(frozen=True)
class Entry:
    """A file of a table: of data or of deletes."""

    path: str
    """As the table names it; `Place.resolve` says where it lies."""
    content: DataFileContent
    status: ManifestEntryStatus
    snapshot_id: int | None
    """The snapshot that added the file, or, if its status says so, removed it."""
    sequence: int
    """The data sequence number: a file of deletes applies to data of smaller ones."""
    spec_id: int
    partition: tuple[Any, ...]
    format: str
    records: int
    bytes: int
    equality_ids: tuple[int, ...]
    referenced_path: str | None
    """The only data file that a file of position deletes, or a deletion vector, is about, if it says so."""
    path_bounds: Bounds | None
    """Of a file of position deletes: the least and the largest path of a data file in it, perhaps cut and rounded."""
    offset: int | None
    size: int | None
    """Of a deletion vector: its bytes in a Puffin file."""

    @property
    def partition_key(self) -> tuple[Any, ...]:
        """Equal for equal partitions, also of NaN."""
        return (self.spec_id, *("NaN" if value != value else value for value in self.partition))

    def may_name(self, path: str) -> bool:
        """Whether a file of position deletes may have some of a data file, by its bounds."""
        return self.path_bounds is None or self.path_bounds[0] <= path.encode() <= self.path_bounds[1]


def read_manifests(io: FileIO, place: Place, manifest_list: str) -> list[ManifestFile]:
    """The manifests of a snapshot. Raises SourceError if their list cannot be read."""
    path = place.resolve(manifest_list)
    with table_file_errors(path):
        return list(read_manifest_list(io.new_input(path)))


def read_entries(io: FileIO, place: Place, manifest: ManifestFile) -> Iterator[Entry]:
    """The entries of a manifest, removed files too. Raises SourceError if it cannot be read, or if a file is encrypted."""
    path = place.resolve(manifest.manifest_path)
    if manifest.key_metadata:
        raise SourceError(f"{path} is encrypted, {ENCRYPTED}")
    with table_file_errors(path):
        with AvroFile[ManifestEntry](
            io.new_input(path),
            MANIFEST_ENTRY_SCHEMAS[3],
            read_types={-1: ManifestEntry, 2: DataFile},
            read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
        ) as entries:
            yield from (_entry(manifest, entry) for entry in entries)


def live_entries(io: FileIO, place: Place, manifest_list: str, content: ManifestContent | None = None) -> Iterator[Entry]:
    """The files of a snapshot, or those of data or of deletes alone."""
    for manifest in read_manifests(io, place, manifest_list):
        if content is None or manifest.content == content:
            yield from (entry for entry in read_entries(io, place, manifest) if entry.status != ManifestEntryStatus.DELETED)


def _entry(manifest: ManifestFile, entry: ManifestEntry) -> Entry:
    file, bounds = entry.data_file, _path_bounds(entry.data_file)
    if file.key_metadata:
        raise SourceError(f"{file.file_path} is encrypted, {ENCRYPTED}")
    is_inherited = entry.sequence_number is None and (entry.status == ManifestEntryStatus.ADDED or manifest.sequence_number == 0)
    return Entry(
        path=file.file_path,
        content=file.content,
        status=entry.status,
        snapshot_id=manifest.added_snapshot_id if entry.snapshot_id is None else entry.snapshot_id,
        sequence=(manifest.sequence_number if is_inherited else entry.sequence_number) or 0,
        spec_id=manifest.partition_spec_id,
        partition=tuple(file.partition[place] for place in range(len(file.partition))),
        format=file.file_format.value,
        records=file.record_count,
        bytes=file.file_size_in_bytes,
        equality_ids=tuple(file.equality_ids or ()),
        referenced_path=file[_REFERENCED_FILE] or (bounds[0].decode() if bounds and bounds[0] == bounds[1] else None),
        path_bounds=bounds,
        offset=file[_OFFSET],
        size=file[_SIZE],
    )


def _path_bounds(file: DataFile) -> Bounds | None:
    if file.content != DataFileContent.POSITION_DELETES or not file.lower_bounds or not file.upper_bounds:
        return None
    lower, upper = file.lower_bounds.get(PATH_FIELD_ID), file.upper_bounds.get(PATH_FIELD_ID)
    return None if lower is None or upper is None else (lower, upper)
