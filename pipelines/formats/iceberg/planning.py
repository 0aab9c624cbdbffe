"""Which delete files apply to which data file.

- Equality deletes apply to data of strictly smaller sequence numbers: to a row that came with them, or later, they do not. Those of a spec
  without partition fields apply to every partition.
- Position deletes, in files or as vectors, apply to the data file that they name, also to one of their own commit.
- Where a data file has a vector, its files of position deletes are not read: the vector has what they deleted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import IdentityTransform, VoidTransform

from pipelines.errors import SourceError
from pipelines.formats.iceberg.manifests import Entry

PARQUET, PUFFIN = "PARQUET", "PUFFIN"


EqualityGroup = tuple[tuple[int, ...], tuple[Any, ...] | None]
"""Equality deletes by the same fields, and of the same partition; of all partitions if it is None."""


@dataclass(frozen=True)
class PlannedFile:
    """A data file, and what is deleted of it."""

    path: str
    """As the table and its position deletes name it."""
    sequence: int
    records: int
    bytes: int
    constants: Mapping[int, Any]
    """Values of the file's partition by the ID of the field, of fields that are partitioned by their identity."""
    vector: Entry | None = None
    position_deletes: tuple[Entry, ...] = ()
    equality_groups: tuple[EqualityGroup, ...] = ()
    """Those with deletes that are newer than the file."""

    @property
    def remaining_records(self) -> int | None:
        """The rows that are left, if the manifests say it."""
        if self.position_deletes or self.equality_groups:
            return None
        return self.records - (self.vector.records if self.vector else 0)


@dataclass(frozen=True)
class ScanPlan:
    """The files of a snapshot that are to be read."""

    files: tuple[PlannedFile, ...]
    equality_deletes: Mapping[EqualityGroup, tuple[Entry, ...]]

    @property
    def remaining_records(self) -> int | None:
        """The rows that are left, if the manifests say it."""
        counts = [file.remaining_records for file in self.files]
        return None if None in counts else sum(count for count in counts if count is not None)


def plan_files(data: Iterable[Entry], deletes: Iterable[Entry], specs: Mapping[int, PartitionSpec]) -> ScanPlan:
    """The data files, each with the deletes that apply to it. Raises SourceError for files of a format that is not read, and for a data
    file of several vectors."""
    index = _DeleteIndex(deletes, specs)
    files = []
    for entry in data:
        check_format(entry)
        files.append(index.plan(entry, partition_constants(specs[entry.spec_id], entry)))
    return ScanPlan(tuple(files), {group: tuple(entries) for group, entries in index.equality.items()})


class _DeleteIndex:
    """The delete files of a snapshot, by what they apply to."""

    def __init__(self, entries: Iterable[Entry], specs: Mapping[int, PartitionSpec]) -> None:
        self.equality: dict[EqualityGroup, list[Entry]] = {}
        self._groups: dict[Any, dict[EqualityGroup, int]] = {}
        """By scope: the newest sequence number of each group."""
        self._vectors: dict[str, list[Entry]] = {}
        self._positions: dict[Any, list[Entry]] = {}
        """By the data file that they are about alone, or else by partition."""
        for entry in entries:
            check_format(entry)
            if entry.content == DataFileContent.EQUALITY_DELETES:
                scope = None if is_unpartitioned(specs[entry.spec_id]) else entry.partition_key
                group = entry.equality_ids, scope
                self.equality.setdefault(group, []).append(entry)
                newest = self._groups.setdefault(scope, {})
                newest[group] = max(entry.sequence, newest.get(group, 0))
            elif entry.format == PUFFIN:
                self._vectors.setdefault(str(entry.referenced_path), []).append(entry)
            else:
                self._positions.setdefault(entry.referenced_path or entry.partition_key, []).append(entry)

    def plan(self, data: Entry, constants: Mapping[int, Any]) -> PlannedFile:
        vectors = [entry for entry in self._vectors.get(data.path, ()) if entry.sequence >= data.sequence]
        if len(vectors) > 1:
            raise SourceError(
                f"{data.path} has {len(vectors)} deletion vectors, and may have one; name another snapshot, or mend the table"
            )
        positions = [
            entry
            for key in (data.path, data.partition_key)
            for entry in self._positions.get(key, ())
            if entry.sequence >= data.sequence and entry.may_name(data.path)
        ]
        groups = [
            group for scope in (None, data.partition_key) for group, newest in self._groups.get(scope, {}).items() if newest > data.sequence
        ]
        return PlannedFile(
            path=data.path,
            sequence=data.sequence,
            records=data.records,
            bytes=data.bytes,
            constants=constants,
            vector=vectors[0] if vectors else None,
            position_deletes=() if vectors else tuple(positions),
            equality_groups=tuple(groups),
        )


def is_unpartitioned(spec: PartitionSpec) -> bool:
    """Whether a spec has no partitions; fields that were dropped remain as void ones in tables of the first version."""
    return all(isinstance(partition_field.transform, VoidTransform) for partition_field in spec.fields)


def partition_constants(spec: PartitionSpec, entry: Entry) -> dict[int, Any]:
    """The values of a data file's partition by the ID of the field, of fields that are partitioned by their identity."""
    pairs = zip(spec.fields, entry.partition, strict=True)
    return {
        partition_field.source_id: value for partition_field, value in pairs if isinstance(partition_field.transform, IdentityTransform)
    }


def check_format(entry: Entry) -> None:
    """Raises SourceError for a file of a format that is not read."""
    if entry.content == DataFileContent.DATA and entry.format != PARQUET:
        raise SourceError(
            f"{entry.path} is a data file of the format {entry.format}, and only Parquet is read; write the table as Parquet: set its "
            "property write.format.default, and rewrite its data files"
        )
    if entry.content != DataFileContent.DATA and entry.format not in (PARQUET, PUFFIN):
        raise SourceError(
            f"{entry.path} is a delete file of the format {entry.format}, and only Parquet and Puffin are read; compact the table "
            "where it was written"
        )
    if entry.format == PUFFIN and (entry.offset is None or entry.size is None or entry.referenced_path is None):
        raise SourceError(f"{entry.path}: its manifest does not say where its deletion vector lies, or of which file it is; mend the table")
    if entry.content == DataFileContent.EQUALITY_DELETES and not entry.equality_ids:
        raise SourceError(f"{entry.path} is an equality delete file without equality IDs; compact the table where it was written")


def split_by_content(entries: Iterable[Entry]) -> tuple[list[Entry], list[Entry]]:
    """Data files, and delete files."""
    data: list[Entry] = []
    deletes: list[Entry] = []
    for entry in entries:
        (data if entry.content == DataFileContent.DATA else deletes).append(entry)
    return data, deletes
