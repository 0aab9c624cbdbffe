"""Finds the files whose rows came to a Delta table between two of its versions, from the commits in its log.

A commit that appends adds files of new rows. One that compacts removes files and adds others with the same rows, and marks both with
`dataChange: false`: the files that it removes are read, which may have come after the earlier version, and not those that it adds. After
any other commit, rows that the earlier version had may be gone or altered."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from pyarrow.fs import FileType
from pyspark.sql import types as T

from pipelines.data.sources.base import NoIncrementError
from pipelines.data.sources.files.content import locate
from pipelines.errors import SourceError
from pipelines.formats.delta.log import Actions, commit_info, list_log
from pipelines.formats.delta.snapshot import DataFile, Snapshot, open_snapshot

_CHECKSUM = re.compile(r"delta:(.+)@(\d+):[0-9a-f]+")


def find_added_files(snapshot: Snapshot, earlier: Sequence[str]) -> tuple[DataFile, ...]:
    """The files of rows that `snapshot` has and a version with the checksums `earlier` has not. Raises NoIncrementError if other rows may
    differ, or if the log does not tell."""
    version = _earlier_version(snapshot, earlier)
    log = list_log(snapshot.place)
    numbers = range(version + 1, snapshot.version + 1)
    if missing := [number for number in numbers if log is None or number not in log.commits]:
        raise NoIncrementError(f"commit {missing[0]} of {snapshot.place.path} is no longer in its log, so what it changed is not known")
    base = _open_earlier(snapshot, version)
    if [base.checksum] != list(earlier):
        raise NoIncrementError(
            f"{base.description} has not the rows that the earlier version {version} of this table had: a copy was written to, or a backup "
            "was restored"
        )
    if log is None or not numbers:
        return ()
    known_names, added = {file.name for file in base.files}, dict[str, int]()
    for number in numbers:
        actions = log.actions(number)
        _check_columns(base, actions, number)
        for name in _find_appended_names(base, actions, number):
            if name in known_names:
                raise NoIncrementError(f"commit {number} of {snapshot.place.path} adds {name} again, so its rows may be other ones")
            known_names.add(name)
            added[name] = number
    return tuple(_data_files(snapshot, added))


def _earlier_version(snapshot: Snapshot, earlier: Sequence[str]) -> int:
    match = _CHECKSUM.fullmatch(earlier[0]) if len(earlier) == 1 else None
    if match is None:
        raise NoIncrementError(f"the earlier rows were not those of a Delta table ({', '.join(earlier[:3])})")
    table_id, version = match[1], int(match[2])
    if table_id != snapshot.table_id:
        raise NoIncrementError(
            f"the earlier rows were of another table (id {table_id}) than that at {snapshot.place.path} (id {snapshot.table_id})"
        )
    if version > snapshot.version:
        raise NoIncrementError(f"version {snapshot.version} of {snapshot.place.path} is older than {version}, the earlier one")
    return version


def _open_earlier(snapshot: Snapshot, version: int) -> Snapshot:
    if version == snapshot.version:
        return snapshot
    try:
        return open_snapshot(snapshot.place.path, version)
    except SourceError as error:
        raise NoIncrementError(str(error)) from error


def _check_columns(base: Snapshot, actions: Actions, number: int) -> None:
    """Raises NoIncrementError if a commit gives the table other columns than it had."""
    for metadata in (action["metaData"] for action in actions if "metaData" in action):
        if T.StructType.fromJson(json.loads(metadata["schemaString"])) != base.columns:
            raise NoIncrementError(f"commit {number} of {base.place.path} changes the table's schema, since version {base.version}")


def _find_appended_names(base: Snapshot, actions: Actions, number: int) -> list[str]:
    """The files of new rows that a commit adds. Raises NoIncrementError if it removes or alters rows."""
    adds, removes = ([action[kind] for action in actions if kind in action] for kind in ("add", "remove"))
    if any(remove.get("dataChange", True) for remove in removes):
        details = commit_info(actions)
        mode = str(details.get("operationParameters", {}).get("mode", "")).lower()
        operation = " ".join(filter(None, (str(details.get("operation", "change")), mode if mode == "overwrite" else "")))
        raise NoIncrementError(f"commit {number} of {base.place.path} is a {operation}, which removes or alters rows that were there")
    return [add["path"] for add in adds if add.get("dataChange", True)]


def _data_files(snapshot: Snapshot, added: Mapping[str, int]) -> Iterator[DataFile]:
    """The files by the numbers of the commits that added them: of the snapshot, or, if they were compacted since, of an older version."""
    current = {file.name: file for file in snapshot.files}
    yield from (current[name] for name in added if name in current)
    compacted = [name for name in added if name not in current]
    for number in dict.fromkeys(added[name] for name in compacted):
        files = {file.name: file for file in open_snapshot(snapshot.place.path, number).files}
        for file in (files[name] for name in compacted if added[name] == number):
            filesystem, path = locate(file.path)
            if filesystem.get_file_info(path).type != FileType.File:
                raise NoIncrementError(f"{file.path}, which commit {number} added, was compacted since, and is gone, as after a VACUUM")
            yield file
