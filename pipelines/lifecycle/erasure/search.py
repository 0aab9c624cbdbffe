"""Finds the rows of keys in all versions of a dataset. Versions share parts, and each part is read once."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyarrow.fs import FileSystem

from pipelines.config.messages.words import name_list
from pipelines.data.versions import storage
from pipelines.data.versions.commit import read_manifest
from pipelines.data.versions.manifest import SPLITS, Manifest
from pipelines.data.versions.part_folders import path_in_dataset
from pipelines.data.versions.parts import RowGroup
from pipelines.data.versions.rewrite import Removal
from pipelines.data.versions.row_keys import find_rows, has_keys
from pipelines.data.versions.schema import schema_from_text
from pipelines.data.versions.versions import Version, read_version
from pipelines.errors import ConfigError, CorruptError, DatasetError, OutdatedError
from pipelines.lifecycle.erasure.erased_keys import HashedKey, Key, hash_keys
from pipelines.lifecycle.erasure.quarantine import find_records

Work = TypeVar("Work")
Answer = TypeVar("Answer")
_REMAKE = "make it again with jobs/etl.py, or remove its folder"


@dataclass(frozen=True)
class SharedPart:
    """A part, which one version owns and several may refer to."""

    owner: str
    """Name of the version in whose folder it lies."""
    groups: tuple[RowGroup, ...]
    """All its row groups, with paths relative to the owner."""

    @property
    def path(self) -> str:
        """Relative to the dataset's folder."""
        return f"{self.owner}/{self.groups[0].file}"


@dataclass
class KeySearch:
    """Where the rows of keys are."""

    filesystem: FileSystem
    folder: str
    """Of the dataset."""
    versions: dict[str, Version] = field(default_factory=dict)
    """Those that could be searched, by name."""
    unsearchable: dict[str, str] = field(default_factory=dict)
    """Why another version could not be, by name."""
    parts: dict[str, dict[str, SharedPart]] = field(default_factory=dict)
    """The parts of each version, by their paths relative to the dataset's folder."""
    keys: dict[str, list[HashedKey | ConfigError]] = field(default_factory=dict)
    """The keys in the types of each version; an error for one that no row of the version can have."""
    removals: dict[str, Removal] = field(default_factory=dict)
    """The rows in each part that has some, by its path relative to the dataset's folder."""
    quarantined: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Numbers of the refused rows in each quarantine file that has some, by its path relative to the dataset's folder."""

    def rows(self, version: str) -> dict[str, int]:
        """Rows of the keys by split; splits without any are left out."""
        counts = dict.fromkeys(SPLITS, 0)
        for path in self.parts[version].keys() & self.removals.keys():
            counts[self.removals[path].groups[0].split] += len(self.removals[path].rows)
        return {split: rows for split, rows in counts.items() if rows}

    def count_quarantined(self, version: str) -> int:
        return sum(len(rows) for path, rows in self.quarantined.items() if path.startswith(f"{version}/"))

    def positions(self, version: str) -> dict[str, list[int]]:
        """Numbers of the rows of the keys within each split; none for folds, whose splits are made when a training begins."""
        positions: dict[str, list[int]] = {}
        ends = dict.fromkeys(SPLITS, 0)
        for path, part in self.parts[version].items() if self.versions[version].manifest.folds is None else ():
            split = part.groups[0].split
            if path in self.removals:
                positions.setdefault(split, []).extend(ends[split] + row for row in self.removals[path].rows)
            ends[split] += sum(group.rows for group in part.groups)
        return positions

    def keys_of_type(self, version: str) -> list[HashedKey]:
        """The keys that rows of a version can have."""
        return [key for key in self.keys[version] if isinstance(key, HashedKey)]

    def records(self, keys: Sequence[Key]) -> list[Mapping[str, Any]]:
        """The keys as records of the quarantine have them, in the types of all versions; as texts if there is no version."""
        records = [key.record for version in self.keys for key in self.keys_of_type(version)]
        return list({repr(record): record for record in records}.values()) or list(keys)

    @property
    def concerned(self) -> list[str]:
        """The versions with such rows, or such refused rows."""
        return [name for name in self.versions if self.rows(name) or self.count_quarantined(name)]


def search(path: str, columns: Sequence[str], keys: Sequence[Key], application: str) -> KeySearch:
    """Find the rows whose key has the values of `keys` in the `columns` of `dataset.key`. Raises ConfigError for a value that no version's
    column can have, CorruptError if a file of keys is damaged."""
    filesystem, folder = storage.locate(path)
    result = KeySearch(filesystem, folder)
    manifests, result.unsearchable = readable_manifests(filesystem, folder)
    for name, manifest in manifests.items():
        version = _open_searchable(result, name, manifest, columns)
        if version is not None:
            result.versions[name], result.parts[name] = version, parts_by_path(version)
    result.keys = hash_for_versions({name: version.manifest for name, version in result.versions.items()}, keys, application)
    parts = {path: (part, name) for name, shared in result.parts.items() for path, part in shared.items()}
    rows_of_parts = map_in_threads(partial(_find_in_part, result), parts.values())
    for (path, (part, _)), rows in zip(parts.items(), rows_of_parts, strict=True):
        if rows:
            result.removals[path] = Removal(part.groups, rows)
    for name in result.versions:
        records = [key.record for key in result.keys_of_type(name)]
        for file in quarantine_files(result, name):
            if rows := find_records(filesystem, f"{folder}/{file}", records, keys):
                result.quarantined[file] = rows
    return result


def map_in_threads(function: Callable[[Work], Answer], work: Iterable[Work]) -> list[Answer]:
    """The answers in the order of the work. Arrow decodes, hashes and compresses without Python's lock."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(function, work))


def readable_manifests(filesystem: FileSystem, folder: str) -> tuple[dict[str, Manifest], dict[str, str]]:
    """The manifests in a dataset's folder, and why others cannot be read, by the name of the version's folder."""
    manifests, faults = dict[str, Manifest](), dict[str, str]()
    for entry in storage.entries(filesystem, folder):
        try:
            if not entry.is_file and (manifest := read_manifest(filesystem, entry.path)):
                manifests[entry.base_name] = manifest
        except (OutdatedError, CorruptError) as error:
            faults[entry.base_name] = str(error)
    return manifests, faults


def dataset_key(manifest: Manifest) -> tuple[str, ...]:
    """The columns of `dataset.key`; none without a key."""
    return tuple(manifest.identity.get("dataset", {}).get("key", ()))


def _open_searchable(result: KeySearch, name: str, manifest: Manifest, columns: Sequence[str]) -> Version | None:
    """The version, if the hashes beside its parts are those of such keys; else its reason is kept."""
    declared = dataset_key(manifest)
    if {*declared} != {*columns}:
        reason = f"has the key {name_list(declared)}: erase with a config of this key as well" if declared else f"has no key: {_REMAKE}"
        result.unsearchable[name] = f"it {reason}"
        return None
    try:
        version = read_version(result.filesystem, f"{result.folder}/{name}", manifest)
    except DatasetError as error:
        result.unsearchable[name] = str(error)
        return None
    if version.row_groups and not has_keys(version.filesystem, version.root, version.row_groups):
        result.unsearchable[name] = f"it has no hashes of its rows' keys: {_REMAKE}"
        return None
    return version


def parts_by_path(version: Version) -> dict[str, SharedPart]:
    """The parts of a version, by their paths relative to the dataset's folder."""
    parts = {}
    for file, groups in version.groups_by_part().items():
        owner, _, inner = path_in_dataset(version.folder, file).partition("/")
        parts[f"{owner}/{inner}"] = SharedPart(owner, tuple(replace(group, file=inner) for group in groups))
    return parts


def hash_for_versions(manifests: Mapping[str, Manifest], keys: Sequence[Key], application: str) -> dict[str, list[HashedKey | ConfigError]]:
    """The keys in the types that they have in each version, hashed once for versions that have the same. Raises ConfigError for a key that
    no version's rows can have."""
    by_schema: dict[pa.Schema, list[HashedKey | ConfigError]] = {}
    hashed = {}
    for name, manifest in manifests.items():
        raw = schema_from_text(manifest.raw_schema)
        schema = pa.schema([raw.field(column) for column in dataset_key(manifest)])
        if schema not in by_schema:
            by_schema[schema] = hash_keys(keys, schema, application)
        hashed[name] = by_schema[schema]
    for answers in zip(*hashed.values(), strict=True):
        if all(isinstance(answer, ConfigError) for answer in answers):
            raise answers[0]
    return hashed


def _find_in_part(result: KeySearch, part_and_version: tuple[SharedPart, str]) -> tuple[int, ...]:
    """The numbers of the rows in a part whose keys are wanted, by the hashes for a version that refers to it."""
    part, version = part_and_version
    hashes = np.unique(np.array([key.hash for key in result.keys_of_type(version)], np.int64))
    if not len(hashes):
        return ()
    ((_, places, _),) = find_rows(result.filesystem, f"{result.folder}/{part.owner}", part.groups, hashes)
    return tuple(places.tolist())


def quarantine_files(result: KeySearch, version: str) -> list[str]:
    """The files of a version's quarantine, relative to the dataset's folder."""
    folder = f"{result.folder}/{version}/quarantine-{result.versions[version].manifest.attempt}"
    entries = storage.entries(result.filesystem, folder)
    return [entry.path.removeprefix(f"{result.folder}/") for entry in entries if entry.is_file]
