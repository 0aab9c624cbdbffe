"""Commits an attempt as a version, atomically, also when several attempts write the same version.

Every attempt writes in folders of its own, data-<attempt>/, quarantine-<attempt>/ and rows-<attempt>/, beside its own
row_groups-<attempt>.parquet and sources-<attempt>.parquet. Creating manifest.json, which names the attempt, is the atomic
commit. A second attempt finds the manifest, and removes its own files.
"""

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict

import pyarrow as pa
from pyarrow.fs import FileSystem, FileType

from pipelines.data.versions import storage
from pipelines.data.versions.balance import check_balance
from pipelines.data.versions.manifest import Manifest, parse_manifest
from pipelines.data.versions.parts import ROW_GROUPS, RowGroup
from pipelines.data.versions.raw_rows import RAW_ROWS
from pipelines.data.versions.sources import Sources, source_summaries, write_sources, write_table
from pipelines.errors import DatasetError

log = logging.getLogger(__name__)

DEBRIS_AGE_SECONDS = 24 * 3600
FOLDERS, FILES = ("data", "quarantine", RAW_ROWS), ("row_groups", "sources")
"""Prefixes of an attempt's folders and Parquet files; a hyphen and its name follow."""


def commit(
    filesystem: FileSystem,
    root: str,
    manifest: Manifest,
    row_groups: Sequence[RowGroup],
    quarantine: Mapping[str, int] | None = None,
    sources: Sources | None = None,
    raw_rows: Collection[str] = (),
) -> Manifest:
    """Publish `manifest`, with the summary of `sources`, in the folder `root` and return the manifest that is now there:
    ours, or an equal earlier one.

    The files of `row_groups` and `raw_rows`, and those that `quarantine` gives the rows of, are those that count, by their paths relative
    to `root`. Raises DatasetError if rows do not balance, or if an earlier one has the same inputs and another content.
    """
    quarantine = quarantine or {}
    if manifest.balance:
        check_balance(manifest.balance, sum(group.rows for group in row_groups), sum(quarantine.values()))
    remove_unnamed(filesystem, root, manifest.attempt, {*quarantine, *raw_rows, *(group.file for group in row_groups)})
    index = pa.Table.from_pylist([asdict(group) for group in row_groups], schema=ROW_GROUPS)
    checksum = write_table(filesystem, row_groups_path(root, manifest.attempt), index)
    manifest = manifest.model_copy(update={"row_groups_checksum": checksum})
    if sources:
        checksum = write_sources(filesystem, sources_path(root, manifest.attempt), sources)
        manifest = manifest.model_copy(update={"sources": source_summaries(sources), "sources_checksum": checksum})
    if storage.create(filesystem, f"{root}/manifest.json", manifest.to_json()):
        return manifest
    earlier = read_manifest(filesystem, root)
    assert earlier is not None
    if earlier.attempt == manifest.attempt:  # the store's response was lost, and the request was retried
        return earlier
    remove_attempt(filesystem, root, manifest.attempt)
    if earlier.digest != manifest.digest:
        raise DatasetError(
            f"{root} holds digest {earlier.digest[:12]}, and the same inputs now gave {manifest.digest[:12]}: "
            f"the query is not deterministic, or a source changed while it was read. Warnings: {manifest.warnings or 'none'}; "
            f"make it deterministic, and remove {root} to take the new rows"
        )
    return earlier


def read_manifest(filesystem: FileSystem, root: str) -> Manifest | None:
    """The manifest of the version in the folder `root`; None if there is no version."""
    text = storage.read(filesystem, f"{root}/manifest.json")
    return None if text is None else parse_manifest(text, f"{root}/manifest.json")


def row_groups_path(root: str, attempt: str) -> str:
    return f"{root}/row_groups-{attempt}.parquet"


def sources_path(root: str, attempt: str) -> str:
    return f"{root}/sources-{attempt}.parquet"


def remove_attempt(filesystem: FileSystem, root: str, attempt: str) -> None:
    """Remove all files of an attempt."""
    for kind in FOLDERS:
        storage.remove_folder(filesystem, f"{root}/{kind}-{attempt}")
    for kind in FILES:
        path = f"{root}/{kind}-{attempt}.parquet"
        if filesystem.get_file_info(path).type != FileType.NotFound:
            filesystem.delete_file(path)


def remove_debris(filesystem: FileSystem, root: str) -> None:
    """Remove the files of dead attempts: those that no manifest names and that have not been written to for a day.

    Removes nothing if the manifest cannot be read, since it may name any of them.
    """
    try:
        manifest = read_manifest(filesystem, root)
    except DatasetError as error:
        log.warning("old attempts stay: %s", error)
        return
    remove_dead_attempts(filesystem, root, manifest.attempt if manifest else "")


def remove_dead_attempts(filesystem: FileSystem, root: str, committed: str) -> None:
    """Remove the files of attempts other than the committed one that have not been written to for a day. Folders on an object store have no
    time of their own, and do not count."""
    newest: dict[str, float] = {}
    for entry in storage.entries(filesystem, root, recursive=True):
        top = entry.path.removeprefix(root).lstrip("/").split("/")[0]
        kind, _, attempt = top.removesuffix(".parquet").partition("-")
        if kind in (*FOLDERS, *FILES) and attempt and (entry.is_file or entry.mtime):
            written = entry.mtime.timestamp() if entry.mtime else time.time()
            newest[attempt] = max(newest.get(attempt, 0.0), written)
    for attempt, written in newest.items():
        if attempt != committed and time.time() - written > DEBRIS_AGE_SECONDS:
            remove_attempt(filesystem, root, attempt)


def remove_unnamed(filesystem: FileSystem, root: str, attempt: str, named: set[str]) -> None:
    """Remove files of this attempt that no report names: a retried task leaves one."""
    for kind in FOLDERS:
        for entry in storage.entries(filesystem, f"{root}/{kind}-{attempt}", recursive=True):
            if entry.type == FileType.File and entry.path.removeprefix(root).lstrip("/") not in named:
                filesystem.delete_file(entry.path)
