"""Finds and opens dataset versions, and reads single columns of their row groups, without the others and without checksums, which only the
loader compares."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from pipelines.config.messages.validation_errors import show_value
from pipelines.config.messages.words import name_list
from pipelines.data.versions import storage
from pipelines.data.versions.checked_tables import open_table
from pipelines.data.versions.commit import read_manifest, row_groups_path, sources_path
from pipelines.data.versions.manifest import DAMAGED, RESTORE, SPLITS, Manifest, SourceSummary, content_digest
from pipelines.data.versions.parts import ROW_GROUPS, RowGroup
from pipelines.data.versions.raw_inputs import Sources
from pipelines.data.versions.row_groups import Columns, RowGroups, compact
from pipelines.data.versions.schema import Role, TensorColumn, to_numpy
from pipelines.data.versions.source_files import read_sources
from pipelines.errors import CorruptError, DatasetError, OutdatedError

ABSENT = "nothing"
CONFIRMED = "confirmed-"
"""Prefix of an empty file whose name ends with the time, in nanoseconds, at which ETL found the version up to date."""
MOST_KEYS = 5


@dataclass(frozen=True)
class Version:
    """An immutable dataset version, open for reading. Workers receive it by pickle."""

    filesystem: FileSystem
    root: str
    """Folder of the version on that file system."""
    manifest: Manifest
    row_groups: RowGroups
    """All of them, in the order of the index. A large index does not travel in the pickle: workers read it again, by its path."""

    @property
    def columns(self) -> tuple[TensorColumn, ...]:
        return self.manifest.columns

    @property
    def digest(self) -> str:
        return self.manifest.digest

    def split_row_groups(self, split: str) -> RowGroups:
        """The split's row groups in (part, index) order, which is the order of positions."""
        return self.row_groups.select_split(split)

    def parts(self, split: str) -> list[str]:
        """The files of the split's parts in their order, relative to the version."""
        return self.split_row_groups(split).files

    def groups_by_part(self) -> dict[str, tuple[RowGroup, ...]]:
        """The row groups of each part, by its file, both in the order of positions."""
        parts: dict[str, list[RowGroup]] = {}
        for split in SPLITS:
            for group in self.split_row_groups(split):
                parts.setdefault(group.file, []).append(group)
        return {file: tuple(groups) for file, groups in parts.items()}

    @property
    def folder(self) -> str:
        """The name of its folder: that of the version, unless somebody has copied or renamed it."""
        return self.root.rpartition("/")[2]

    def rows(self, split: str) -> int:
        return int(self.row_groups.select_split(split).rows.sum())

    def sources(self) -> Sources:
        """List the raw files, by table; none if the version was made without ETL. Raises CorruptError if their list is gone or altered."""
        checksum = self.manifest.sources_checksum
        return read_sources(self.filesystem, sources_path(self.root, self.manifest.attempt), checksum) if checksum else {}


def versions(path: str) -> list[tuple[str, Manifest]]:
    """Root and manifest of every version in a dataset's folder, starting with the one that ETL made or confirmed last. Ignores versions of
    an older format; raises OutdatedError if there are no others."""
    filesystem, folder = storage.locate(path)
    current: list[tuple[str, Manifest]] = []
    outdated: OutdatedError | None = None
    for entry in storage.entries(filesystem, folder):
        try:
            if not entry.is_file and (manifest := read_manifest(filesystem, entry.path)):
                current.append((entry.path, manifest))
        except OutdatedError as error:
            outdated = error
    if outdated and not current:
        raise outdated
    return sorted(current, key=lambda pair: confirmation_time(filesystem, pair[0], pair[1].created), reverse=True)


def open_version(path: str, identity: dict[str, Any] | None = None) -> Version:
    """Open a version by its own folder, or the one in a dataset's folder that ETL made or confirmed last.

    With `identity` (`Config.data_identity`), the last one that was made from that config, so that edited features never train on stale
    data. Raises DatasetError if there is none, CorruptError if its files contradict each other."""
    filesystem, root = storage.locate(path)
    manifest = read_manifest(filesystem, root)
    if manifest is None:
        entries = versions(path)
        if not entries:
            raise DatasetError(f"{path} holds no dataset version; run jobs/etl.py with the same config first")
        matching = [pair for pair in entries if identity is None or pair[1].identity == identity]
        if not matching:
            newest = entries[0][1]
            raise DatasetError(
                f"{path} holds {len(entries)} version(s), none made from this config's `source` and `dataset`; "
                f"the newest, {newest.version}, has {_differences(newest.identity, identity or {})}; run jobs/etl.py "
                "first, or set them as they were"
            )
        root, manifest = matching[0]
    return read_version(filesystem, root, manifest)


def open_named_version(path: str, name: str) -> Version:
    """The version `name` in a dataset's folder. Raises DatasetError if it is not there, CorruptError as `open_version` does."""
    filesystem, folder = storage.locate(path)
    manifest = read_manifest(filesystem, f"{folder}/{name}")
    if manifest is None:
        raise DatasetError(f"{path} holds no dataset version {name}; its versions are {_list_names(filesystem, folder)}")
    return read_version(filesystem, f"{folder}/{name}", manifest)


def ancestry(version: Version) -> Iterator[Manifest]:
    """The manifest of the version, of the one that it adds rows to, and so on, as far as these are still there."""
    manifest: Manifest | None = version.manifest
    while manifest:
        yield manifest
        folder = version.root.rpartition("/")[0]
        manifest = read_manifest(version.filesystem, f"{folder}/{manifest.parent}") if manifest.parent else None


def find_by_digest(path: str, digest: str) -> Version | None:
    """The version in a dataset's folder whose content has this digest; None if there is none."""
    filesystem, _ = storage.locate(path)
    matching = ((root, manifest) for root, manifest in versions(path) if manifest.digest == digest)
    return next((read_version(filesystem, root, manifest) for root, manifest in matching), None)


def find_by_sources(path: str, identity: dict[str, Any], sources: Mapping[str, SourceSummary]) -> Version | None:
    """The version in a dataset's folder that was made with this identity from raw files with these summaries, by table; of several the one
    that was made or confirmed last, and None if there is none."""
    filesystem, _ = storage.locate(path)
    return next(
        (
            read_version(filesystem, root, manifest)
            for root, manifest in versions(path)
            if manifest.identity == identity and manifest.sources == sources
        ),
        None,
    )


def check_is_not_erased(path: str, digest: str, run_id: str) -> None:
    """Raise DatasetError if the version with this digest, which a run was trained on, has lost rows by an erasure since."""
    for _, manifest in versions(path):
        if digest in manifest.digests - {manifest.digest}:
            raise DatasetError(
                f"run {run_id} was trained on version {manifest.version} before rows were erased from it; train again, and use that run"
            )


def _list_names(filesystem: FileSystem, folder: str) -> str:
    names = [entry.base_name for entry in storage.entries(filesystem, folder) if storage.read(filesystem, f"{entry.path}/manifest.json")]
    return name_list(names) if names else "none"


def read_version(filesystem: FileSystem, root: str, manifest: Manifest) -> Version:
    """The version of a manifest that has been read, in the folder `root`. Raises CorruptError if its index contradicts the manifest."""
    return Version(filesystem, root, manifest, _read_row_groups(filesystem, root, manifest))


def confirm(filesystem: FileSystem, root: str) -> None:
    """Make an existing version the one to open, since the raw data equal its sources again."""
    storage.create(filesystem, f"{root}/{CONFIRMED}{time.time_ns()}", b"")


def confirmation_time(filesystem: FileSystem, root: str, created: datetime) -> int:
    """When a version or predictions were made or confirmed last, in nanoseconds since 1970."""
    names = [entry.base_name for entry in storage.entries(filesystem, root)]
    times = [name.removeprefix(CONFIRMED) for name in names if name.startswith(CONFIRMED)]
    return max(int(created.timestamp() * 1e9), *(int(time) for time in times if time.isdecimal()), 0)


def _read_row_groups(filesystem: FileSystem, root: str, manifest: Manifest) -> RowGroups:
    """The row groups of a version. Raises CorruptError unless they match the manifest's digest."""
    path = row_groups_path(root, manifest.attempt)
    read = partial(_read_columns, filesystem, path, manifest.row_groups_checksum)
    groups = RowGroups(read(), read)
    if strange := groups.splits - {*SPLITS}:
        raise CorruptError(f"{path} has the split {strange.pop()!r}; there are {', '.join(SPLITS)}; {DAMAGED}")
    digest = content_digest(manifest.encoders, groups)
    if digest != manifest.digest:
        raise CorruptError(f"{path} has digest {digest[:12]}; the manifest says {manifest.digest[:12]}; {DAMAGED}")
    for split, summary in manifest.splits.items():
        rows = int(groups.select_split(split).rows.sum())
        if rows != summary.rows:
            raise CorruptError(f"{path} has {rows} rows in {split}; the manifest says {summary.rows}; {DAMAGED}")
    return groups


def _read_columns(filesystem: FileSystem, path: str, checksum: str) -> Columns:
    with open_table(filesystem, path, ROW_GROUPS, checksum) as (rows, batches):
        return compact(batches, rows)


def _differences(identity: dict[str, Any], expected: dict[str, Any]) -> str:
    """A few of the dotted keys whose values differ, with both values."""
    before, now = dict(_leaves(identity)), dict(_leaves(expected))
    keys = [key for key in {**now, **before} if before.get(key, ABSENT) != now.get(key, ABSENT)]
    texts = [
        f"{key} {show_value(before.get(key, ABSENT))} where the config has {show_value(now.get(key, ABSENT))}" for key in keys[:MOST_KEYS]
    ]
    return ", ".join(texts) + (f", and {len(keys) - MOST_KEYS} more" if len(keys) > MOST_KEYS else "")


def _leaves(values: dict[str, Any], key: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{key}{name}.")
        else:
            yield f"{key}{name}", value


def include_passthrough(version: Version, names: tuple[str, ...]) -> Version:
    """The version with carried columns of these names as features, which batches have."""
    return _replace_roles(version, names, "carried", "feature")


def leave_out_features(version: Version, names: Collection[str]) -> Version:
    """The version with features of these names as carried columns, which neither batches nor a served row have."""
    reduced = _replace_roles(version, names, "feature", "carried")
    manifest, query = reduced.manifest, reduced.manifest.served_query
    if reduced is version or query is None:
        return reduced
    read = {column for fitted in manifest.encoders.values() if fitted.column.role == "feature" for column in fitted.inputs}
    return replace(reduced, manifest=manifest.model_copy(update={"served_query": query.select(read)}))


def _replace_roles(version: Version, names: Collection[str], old: Role, new: Role) -> Version:
    encoders = dict(version.manifest.encoders)
    chosen = [name for name in names if name in encoders and encoders[name].column.role == old]
    for name in chosen:
        encoders[name] = encoders[name].model_copy(update={"column": replace(encoders[name].column, role=new)})
    return replace(version, manifest=version.manifest.model_copy(update={"encoders": encoders})) if chosen else version


def read_column(version: Version, split: str, column: TensorColumn) -> np.ndarray:
    """One column of the split's rows, shape (rows, *column.shape). Raises CorruptError as `read_stored_columns` does."""
    groups, folds = version.split_row_groups(split), version.manifest.folds
    deciding = [version.manifest.encoders[name].column for name in folds.rows] if folds else []
    arrays = read_stored_columns(version.filesystem, version.root, groups, [column, *deciding])
    return np.concatenate([group.select(values)[column.name] for group, values in zip(groups, arrays, strict=True)])


def read_stored_columns(
    filesystem: FileSystem, root: str, groups: Sequence[RowGroup], columns: Sequence[TensorColumn]
) -> list[dict[str, np.ndarray]]:
    """These columns of the stored rows of each row group, shape (stored_rows, *column.shape), by name. Raises CorruptError if a file is
    gone or has other rows than the manifest says."""
    values: dict[int, dict[str, np.ndarray]] = {}
    for places, arrays in read_columns_by_file(filesystem, root, groups, columns):
        values.update(zip(places, arrays, strict=True))
    return [values[place] for place in range(len(groups))]


def read_columns_by_file(
    filesystem: FileSystem, root: str, groups: Sequence[RowGroup], columns: Sequence[TensorColumn]
) -> Iterator[tuple[list[int], list[dict[str, np.ndarray]]]]:
    """The columns of stored rows, file by file, for whoever keeps less than the values: the places in `groups`, and the columns of each."""
    places_by_file: dict[str, list[int]] = {}
    for place, group in enumerate(groups):
        places_by_file.setdefault(group.file, []).append(place)
    for file, places in places_by_file.items():
        yield places, _read_file(filesystem, storage.part_path(root, file), [groups[place] for place in places], columns)


def _read_file(
    filesystem: FileSystem, path: str, groups: Sequence[RowGroup], columns: Sequence[TensorColumn]
) -> list[dict[str, np.ndarray]]:
    try:
        with filesystem.open_input_file(path) as source, pq.ParquetFile(source) as parquet:
            names = [column.name for column in columns]
            table = parquet.read_row_groups([group.index for group in groups], columns=names, use_threads=False)
        arrays = {
            column.name: np.concatenate([to_numpy(column, chunk) for chunk in table.column(column.name).chunks]) for column in columns
        }
    except (OSError, KeyError, pa.ArrowException, DatasetError) as error:
        storage.ask(filesystem, path)
        raise CorruptError(f"{path}: {error}; {RESTORE}") from error
    ends = np.cumsum([group.stored_rows for group in groups])
    if table.num_rows != ends[-1]:
        raise CorruptError(f"{path} has {table.num_rows} rows; the manifest says {ends[-1]}; {RESTORE}")
    pieces = {name: np.split(array, ends[:-1]) for name, array in arrays.items()}
    return [{name: pieces[name][number] for name in pieces} for number in range(len(groups))]
