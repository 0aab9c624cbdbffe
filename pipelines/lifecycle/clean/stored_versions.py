"""Reads the folder of a dataset: versions, the parts of other versions that they refer to, and attempts that were not committed."""

import os
import posixpath
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pyarrow.fs import FileInfo, FileSystem, LocalFileSystem

from pipelines.data.versions import storage
from pipelines.data.versions.commit import DEBRIS_AGE_SECONDS, FILES, FOLDERS, read_manifest, row_groups_path
from pipelines.data.versions.manifest import Manifest, parse_manifest
from pipelines.data.versions.part_folders import INDEX, VERSION_NAME, PartFolder, read_part_folders
from pipelines.data.versions.versions import confirmation_time
from pipelines.errors import DatasetError
from pipelines.lifecycle.statements.attested_versions import find_attestations

MANIFEST, REMOVED = "manifest.json", "removed.json"
"""The manifest of a version, and its name from the moment at which the version is removed until all its files are gone."""


@dataclass(frozen=True)
class UncommittedAttempt:
    """The files of an attempt that no manifest names."""

    bytes: int
    written: float
    """When its last file was written, in seconds since 1970."""

    @property
    def is_old(self) -> bool:
        """Whether it died: a running ETL writes files all the time."""
        return time.time() - self.written > DEBRIS_AGE_SECONDS


@dataclass(frozen=True)
class StoredVersion:
    """A folder of a dataset, of a version or of attempts at one."""

    filesystem: FileSystem
    root: str
    manifest: Manifest | None
    fault: str = ""
    """Why there is a manifest that cannot be used; empty if it can be, or if there is none."""
    confirmed: float = 0.0
    """When ETL made or confirmed the version last, in seconds since 1970."""
    is_removed: bool = False
    """Whether a removal of the version has begun."""
    removed_attempt: str = ""
    """The attempt that was the version's when its removal began."""
    is_old: bool = False
    """Whether the folder itself was changed last more than a day ago."""
    part_folders: frozenset[PartFolder] = frozenset()
    """Those that the index of the version names, and those of running attempts."""
    index_fault: str = ""
    """Why such an index cannot be read."""
    attempts: Mapping[str, UncommittedAttempt] = field(default_factory=dict)
    """Those that the manifest does not name."""
    attestations: tuple[str, ...] = ()
    """Statements that name the version."""

    @property
    def name(self) -> str:
        return self.root.rpartition("/")[2]

    @property
    def is_version(self) -> bool:
        """Whether it has a manifest, be it a damaged one."""
        return self.manifest is not None or bool(self.fault)

    @property
    def own_attempts(self) -> frozenset[str]:
        """Attempts whose parts an index in the folder names."""
        return frozenset(folder.attempt for folder in self.part_folders if not folder.version)


def read_stored_versions(path: str) -> list[StoredVersion]:
    """The folders of a dataset, by name. Raises DatasetError if the store fails."""
    filesystem, folder = storage.locate(path)
    stored = [_read(filesystem, folder, entry) for entry in storage.entries(filesystem, folder) if not entry.is_file]
    return [version for version in stored if version.is_version or version.is_removed or VERSION_NAME.fullmatch(version.name)]


def _read(filesystem: FileSystem, folder: str, entry: FileInfo) -> StoredVersion:
    root, manifest, fault = entry.path, None, ""
    names = {inner.base_name for inner in storage.entries(filesystem, root)}
    try:
        manifest = read_manifest(filesystem, root) if MANIFEST in names else None
    except DatasetError as error:
        fault = f"its manifest cannot be read: {error}"
    if isinstance(filesystem, LocalFileSystem) and os.path.islink(root):
        fault = fault or f"{root} is a link, which a cleaning does not follow"
    attempts = dict(_attempts(filesystem, root, manifest.attempt if manifest else ""))
    removed_attempt = read_removed_attempt(filesystem, root) if REMOVED in names else ""
    live = {name for name, attempt in attempts.items() if not attempt.is_old and name != removed_attempt}
    indexes = {name for name in names if name.startswith(f"{INDEX}-") and (attempt_name(name) in live or (fault and manifest is None))}
    if manifest:
        indexes.add(posixpath.basename(row_groups_path(root, manifest.attempt)))
    part_folders, index_fault = _read_indexes(filesystem, root, sorted(indexes))
    return StoredVersion(
        filesystem,
        root,
        manifest,
        fault,
        confirmed=confirmation_time(filesystem, root, manifest.created) / 1e9 if manifest else 0.0,
        is_removed=REMOVED in names,
        removed_attempt=removed_attempt,
        is_old=_age(entry.mtime) > DEBRIS_AGE_SECONDS,
        part_folders=part_folders,
        index_fault=index_fault,
        attempts=attempts,
        attestations=find_attestations(filesystem, folder, root) if manifest or fault else (),
    )


def read_removed_attempt(filesystem: FileSystem, root: str) -> str:
    """The attempt of a version whose removal has begun; empty if that cannot be read."""
    try:
        return parse_manifest(storage.read(filesystem, f"{root}/{REMOVED}") or b"", f"{root}/{REMOVED}").attempt
    except DatasetError:
        return ""


def _attempts(filesystem: FileSystem, root: str, committed: str) -> Iterator[tuple[str, UncommittedAttempt]]:
    """The attempts but the committed one, which may have a hundred thousand files that nobody needs to list."""
    entries: dict[str, list[FileInfo]] = {}
    for entry in storage.entries(filesystem, root):
        if (name := attempt_name(entry.base_name)) and name != committed:
            inner = [] if entry.is_file else storage.entries(filesystem, entry.path, recursive=True)
            entries.setdefault(name, []).extend([entry, *inner])
    for name, files in entries.items():  # folders on an object store have no time of their own
        times = [entry.mtime.timestamp() if entry.mtime else time.time() for entry in files if entry.is_file or entry.mtime]
        yield name, UncommittedAttempt(sum(entry.size or 0 for entry in files if entry.is_file), max(times, default=time.time()))


def attempt_name(entry: str) -> str:
    """The attempt that an entry of a version's folder is of; empty for others."""
    kind, _, attempt = entry.removesuffix(".parquet").partition("-")
    return attempt if kind in (*FOLDERS, *FILES) else ""


def _age(changed: datetime | None) -> float:
    """Seconds since then; none if that is not known."""
    return time.time() - changed.timestamp() if changed else 0.0


def _read_indexes(filesystem: FileSystem, root: str, names: list[str]) -> tuple[frozenset[PartFolder], str]:
    folders, fault = set[PartFolder](), ""
    for name in names:
        try:
            folders |= read_part_folders(filesystem, f"{root}/{name}")
        except DatasetError as error:
            fault = str(error)
    return frozenset(folders), fault


def folder_bytes(filesystem: FileSystem, root: str) -> int:
    """Bytes of all files in a folder; 0 if it does not exist."""
    return sum(entry.size or 0 for entry in storage.entries(filesystem, root, recursive=True) if entry.is_file)
