"""A snapshot of a table: its identity, its columns, and its data files with what is deleted of them."""

from collections.abc import Collection
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import NestedField, StructType

from pipelines.config.messages.words import name_list
from pipelines.errors import SourceError
from pipelines.formats.iceberg.columns import NANOSECONDS, check_letter_case, field_path, spark_ddl
from pipelines.formats.iceberg.data_files import DataFileReader
from pipelines.formats.iceberg.manifests import Entry, live_entries
from pipelines.formats.iceberg.opening import OpenTable, Place, open_iceberg
from pipelines.formats.iceberg.parquet_files import TableFiles
from pipelines.formats.iceberg.planning import ScanPlan, plan_files, split_by_content
from pipelines.formats.iceberg.settings import IcebergTable

_MOST_NAMED = 5
"""Snapshots in a message."""


@dataclass(frozen=True)
class TableSnapshot:
    """A snapshot, chosen once: what is committed later does not change it."""

    table: OpenTable
    snapshot: Snapshot
    schema: Schema
    """The table's columns when the snapshot was made, also if the schema was changed without a new snapshot."""

    @property
    def metadata(self) -> TableMetadata:
        return self.table.metadata

    @property
    def io(self) -> FileIO:
        return self.table.io

    @property
    def place(self) -> Place:
        return self.table.place

    @property
    def checksum(self) -> str:
        return f"iceberg:{self.metadata.table_uuid}@{self.snapshot.snapshot_id}"

    @property
    def bytes(self) -> int:
        """Of all data files, as the snapshot's summary says; 0 if it does not."""
        properties = self.snapshot.summary.additional_properties if self.snapshot.summary else {}
        size = properties.get("total-files-size", "")
        return int(size) if size.isdecimal() else 0

    @property
    def ddl(self) -> str:
        return spark_ddl(self.schema)

    @property
    def rounded_columns(self) -> list[tuple[str, str]]:
        """Columns of nanoseconds, with their types."""
        return [(field.name, str(field.field_type)) for field in self.schema.fields if isinstance(field.field_type, NANOSECONDS)]

    def plan(self, added: Collection[Entry] | None = None) -> ScanPlan:
        """The data files of the snapshot, or those `added` to an earlier one, which no delete file is about. Raises SourceError if one is
        not read."""
        data, deletes = (
            split_by_content(live_entries(self.io, self.place, self.snapshot.manifest_list)) if added is None else (list(added), [])
        )
        return plan_files(data, deletes, self.metadata.specs())

    def reader(self, plan: ScanPlan) -> DataFileReader:
        """A reader of the files of a plan, for any process. Raises SourceError if it cannot compare the keys of an equality delete."""
        groups = {group for file in plan.files for group in file.equality_groups}
        keys = {field_id: self._key_field(field_id) for ids, _ in groups for field_id in ids}
        files = TableFiles(self.io, self.place, self.snapshot.snapshot_id, self.metadata.name_mapping())
        return DataFileReader(files, self.schema, {group: plan.equality_deletes[group] for group in groups}, keys)

    def _key_field(self, field_id: int) -> NestedField:
        """A field of an equality delete, which the table may have dropped since: of the newest schema that has it, alone in its structs."""
        schemas = [self.schema, *sorted(self.metadata.schemas, key=lambda schema: -schema.schema_id)]
        path = next(filter(None, (field_path(schema.fields, field_id) for schema in schemas)), ())
        if not path:
            raise SourceError(f"{self.place.actual}: an equality delete is by field {field_id}, which no schema has; compact the table")
        field, kind = path[-1], path[-1].field_type
        if not kind.is_primitive or isinstance(kind, NANOSECONDS):
            raise SourceError(f"{self.place.actual}: an equality delete is by {field.name}, a {kind}, which is not read; compact the table")
        key = NestedField(field.field_id, field.name, kind, False, initial_default=field.initial_default)
        for outer in reversed(path[:-1]):
            key = NestedField(outer.field_id, outer.name, StructType(key), False)
        return key


def choose_snapshot(settings: IcebergTable) -> TableSnapshot:
    """The snapshot that the settings name; the current one, if they name none. Raises SourceError if there is no such snapshot."""
    table = open_iceberg(settings)
    return make_snapshot(table, _find_snapshot(table.metadata, settings), settings.place)


def make_snapshot(table: OpenTable, snapshot: Snapshot, place: str) -> TableSnapshot:
    """Raises SourceError if the table lacks the snapshot's schema, or if Spark takes two columns for one."""
    metadata = table.metadata
    schema = metadata.schema()
    if snapshot.schema_id is not None:
        by_id = {schema.schema_id: schema for schema in metadata.schemas}
        if snapshot.schema_id not in by_id:
            raise SourceError(f"{place}: snapshot {snapshot.snapshot_id} has a schema that the metadata lack; name another snapshot")
        schema = by_id[snapshot.schema_id]
    check_letter_case(schema, place)
    return TableSnapshot(table, snapshot, schema)


def _find_snapshot(metadata: TableMetadata, settings: IcebergTable) -> Snapshot:
    if settings.snapshot is not None:
        named = metadata.snapshot_by_id(settings.snapshot)
        if named is None:
            recent = sorted(metadata.snapshots, key=lambda snapshot: -snapshot.timestamp_ms)[:_MOST_NAMED]
            newest_ids = name_list([str(snapshot.snapshot_id) for snapshot in recent]) or "none"
            raise SourceError(
                f"{settings.place} has no snapshot {settings.snapshot}: it expired, or is of another table; name one, as {newest_ids}"
            )
        return named
    if name := settings.branch or settings.tag:
        kind = SnapshotRefType.BRANCH if settings.branch else SnapshotRefType.TAG
        names = [ref_name for ref_name, ref in metadata.refs.items() if ref.snapshot_ref_type == kind]
        if name not in names:
            raise SourceError(f"{settings.place} has no {kind.value} {name}; it has {name_list(names) or 'none'}: name one, or none")
        named = metadata.snapshot_by_id(metadata.refs[name].snapshot_id)
    else:
        named = metadata.current_snapshot()
    if named is None:
        raise SourceError(f"{settings.place} has no snapshot, so no rows; write some, or name a branch or a tag that has one")
    return named
