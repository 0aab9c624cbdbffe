"""The data files whose rows came after an earlier snapshot.

Snapshots between the two are walked from child to parent. If each only appended, or rewrote files without a change of rows (a compaction),
the new rows are in the files that the appends wrote, as they wrote them: a compaction may have joined them with older rows since. If a
snapshot between them is gone, the two lists of files decide: where all earlier files are still there with the same deletes, the other
files have the new rows.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyiceberg.manifest import DataFileContent, ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation, Snapshot

from pipelines.data.sources.base import NoIncrementError
from pipelines.errors import SourceError
from pipelines.formats.iceberg.columns import field_ids, spark_ddl
from pipelines.formats.iceberg.manifests import Entry, live_entries, read_entries, read_manifests
from pipelines.formats.iceberg.snapshot import TableSnapshot, make_snapshot

_CHECKSUM = re.compile(r"iceberg:(?P<uuid>[0-9a-f-]+)@(?P<snapshot>\d+)")


def new_files(current: TableSnapshot, checksum: str) -> tuple[Entry, ...]:
    """The data files with the rows that came after the snapshot of an earlier `checksum`; none if no rows came. Raises NoIncrementError if
    rows of that snapshot may be gone or altered."""
    earlier_id = _earlier_snapshot_id(current, checksum)
    if earlier_id == current.snapshot.snapshot_id:
        return ()
    newer, is_reached = _snapshots_since(current, earlier_id)
    earlier = current.metadata.snapshot_by_id(earlier_id)
    try:
        _check_schemas(current, earlier, earlier_id)
        if is_reached:
            return tuple(_files_of_appends(current, newer))
        if earlier is None:
            raise NoIncrementError(f"snapshot {earlier_id} expired, and so did others after it, so nothing says which rows are new")
        return _difference(current, earlier)
    except SourceError as error:
        raise NoIncrementError(f"the snapshots since {earlier_id} cannot be compared: {error}") from error


def _earlier_snapshot_id(current: TableSnapshot, checksum: str) -> int:
    match = _CHECKSUM.fullmatch(checksum)
    if match is None:
        raise NoIncrementError(f"the earlier version was not made of a snapshot of Iceberg, but of {checksum[:40]}")
    if match["uuid"] != str(current.metadata.table_uuid):
        raise NoIncrementError(f"the earlier version was made of another table, whose UUID is {match['uuid']}")
    return int(match["snapshot"])


def _snapshots_since(current: TableSnapshot, earlier_id: int) -> tuple[list[Snapshot], bool]:
    """The ancestors of a snapshot that came after the earlier one, itself first, and whether the earlier one is their ancestor."""
    newer: list[Snapshot] = []
    snapshot: Snapshot | None = current.snapshot
    while snapshot is not None:
        newer.append(snapshot)
        if snapshot.parent_snapshot_id == earlier_id:
            return newer, True
        snapshot = current.metadata.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id is not None else None
    return newer, False


def _check_schemas(current: TableSnapshot, earlier: Snapshot | None, earlier_id: int) -> None:
    """Raises NoIncrementError if earlier rows would have other columns, types or defaults in the current schema."""
    if earlier is None:
        if len(current.metadata.schemas) > 1:
            raise NoIncrementError(f"snapshot {earlier_id} expired, and with it its columns, which may not be those of today")
        return
    before, after = make_snapshot(current.table, earlier, current.place.actual).schema, current.schema
    if _what_rows_have(before) != _what_rows_have(after):
        raise NoIncrementError(f"the table's columns changed after snapshot {earlier_id}: {spark_ddl(before)} became {spark_ddl(after)}")


def _what_rows_have(schema: Schema) -> tuple[Any, ...]:
    """Names, types, IDs and defaults, without comments."""
    ids = [field_id for field in schema.fields for field_id in field_ids(field)]
    return spark_ddl(schema), ids, [field.initial_default for field in schema.fields]


def _files_of_appends(current: TableSnapshot, newer: Sequence[Snapshot]) -> Iterator[Entry]:
    """The files that some snapshots appended, the oldest first. Raises NoIncrementError if one did more than append or compact."""
    for snapshot in reversed(newer):
        operation = snapshot.summary.operation if snapshot.summary else None
        if operation not in (Operation.APPEND, Operation.REPLACE):
            name = operation.value if operation else "of an unknown kind"
            raise NoIncrementError(f"snapshot {snapshot.snapshot_id} is {name}, so rows may be gone or altered")
    for snapshot in reversed(newer):
        is_append = snapshot.summary is not None and snapshot.summary.operation == Operation.APPEND
        for entry in _changes(current, snapshot):
            if entry.content != DataFileContent.DATA and entry.status == ManifestEntryStatus.ADDED:
                raise NoIncrementError(f"snapshot {snapshot.snapshot_id} added {entry.path}, which deletes rows")
            if is_append and entry.status == ManifestEntryStatus.DELETED:
                raise NoIncrementError(f"snapshot {snapshot.snapshot_id} calls itself an append, and removed {entry.path}")
            if is_append and entry.status == ManifestEntryStatus.ADDED:
                yield entry


def _changes(current: TableSnapshot, snapshot: Snapshot) -> Iterator[Entry]:
    """The files that a snapshot added or removed, from the manifests that it wrote: others have nothing of it."""
    for manifest in read_manifests(current.io, current.place, snapshot.manifest_list):
        if manifest.added_snapshot_id == snapshot.snapshot_id:
            for entry in read_entries(current.io, current.place, manifest):
                if entry.status != ManifestEntryStatus.EXISTING and entry.snapshot_id == snapshot.snapshot_id:
                    yield entry


def _difference(current: TableSnapshot, earlier: Snapshot) -> tuple[Entry, ...]:
    """The data files that the current snapshot has and the earlier one has not."""
    lists = (earlier.manifest_list, current.snapshot.manifest_list)
    before, after = (_files(live_entries(current.io, current.place, manifest_list)) for manifest_list in lists)
    if missing_keys := sorted(before.keys() - after.keys()):
        raise NoIncrementError(
            f"snapshots after {earlier.snapshot_id} expired, and {missing_keys[0][1]} is no longer in the table: its rows may be gone, or "
            "only moved by a compaction"
        )
    new = [entry for key, entry in after.items() if key not in before]
    if deleting := next((entry for entry in new if entry.content != DataFileContent.DATA), None):
        raise NoIncrementError(f"{deleting.path}, which deletes rows, came after snapshot {earlier.snapshot_id}")
    return tuple(new)


def _files(entries: Iterable[Entry]) -> dict[tuple[DataFileContent, str, int | None], Entry]:
    """By what tells them apart: several deletion vectors are in one file."""
    return {(entry.content, entry.path, entry.offset): entry for entry in entries}
