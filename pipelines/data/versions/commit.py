"""An attempt at a version, and its atomic commit, also when several attempts write the same version.

Spark's tasks write the files of an attempt, and tell the driver about them in reports. Every attempt writes in folders of its own:
data-<attempt>/, keys-<attempt>/, quarantine-<attempt>/ and rows-<attempt>/. Beside them are row_groups-<attempt>.parquet and
sources-<attempt>.parquet. Creating manifest.json, which names the attempt, is the atomic commit. A second attempt finds the manifest, and
removes its own files.
A retried task leaves a file that no report names; readers ignore it, and the commit removes it."""

import json
import logging
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyarrow.fs import FileSystem, FileType

from pipelines.data.versions import storage
from pipelines.data.versions.checked_tables import write_table
from pipelines.data.versions.manifest import Manifest, check_balance, parse_manifest
from pipelines.data.versions.part_folders import INDEX, VERSION_NAME, PartFolder, read_shared_folders
from pipelines.data.versions.parts import ROW_GROUPS, RowGroup
from pipelines.data.versions.raw_inputs import RAW_ROWS, Sources
from pipelines.data.versions.row_groups import BATCH_ROWS, PART_COLUMNS, RowGroups, collect_row_groups, compact, join_row_groups
from pipelines.data.versions.row_keys import KEYS
from pipelines.data.versions.rows_digest import MODULUS
from pipelines.data.versions.source_files import source_summaries, write_sources
from pipelines.errors import DatasetError

_SPARK_TYPES = {pa.string(): "string", pa.int64(): "bigint"}
_ROW_GROUP = ", ".join(f"{field.name}: {_SPARK_TYPES[field.type]}" for field in ROW_GROUPS)
REPORT_SCHEMA = f"report string, row_groups array<struct<{_ROW_GROUP}>>"
"""What a task returns: JSON, and the row groups that it wrote as Arrow, of which there may be a million in all."""
log = logging.getLogger(__name__)
DEBRIS_AGE_SECONDS = 24 * 3600
FOLDERS, FILES = ("data", "quarantine", RAW_ROWS, KEYS), (INDEX, "sources")
"""Prefixes of an attempt's folders and Parquet files; a hyphen and its name follow."""


@dataclass(frozen=True)
class Attempt:
    """The folder and the name of an attempt. Tasks receive it by pickle."""

    filesystem: FileSystem
    root: str
    """Folder of the version."""
    name: str

    def new_file(self, folder: str, prefix: str) -> str:
        """A unique path relative to the version, in a folder that exists."""
        storage.make_folder(self.filesystem, f"{self.root}/{folder}")
        return f"{folder}/{prefix}-{uuid4().hex[:12]}.parquet"


@dataclass
class Report:
    """The rows and files that one task wrote, or all tasks."""

    row_groups: Sequence[RowGroup] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    """Rows by reason."""
    samples: dict[str, str] = field(default_factory=dict)
    """By reason, the record that sorts first."""
    quarantine: Counter[str] = field(default_factory=Counter)
    """Refused rows by file, relative to the version."""
    side_files: list[str] = field(default_factory=list)
    """Files of keys and of raw rows, relative to the version."""
    superseded: int = 0
    """Rows left out since a newer one has their key."""
    accepted: int = 0
    """Rows that every encoder took."""
    row_sums: dict[str, int] = field(default_factory=dict)
    """Sums of the hashes of the rows in the parts, by split; see `rows_digest`."""
    expected_rows: int = 0
    """Rows expected in the parts: the same number, or the number of windows that documents are cut into."""
    class_counts: dict[str, list[int]] = field(default_factory=dict)
    """By column, how often each class stands in the encoded values of the training split."""
    page: list[dict[str, Any]] = field(default_factory=list)
    """What the data's page shows of the rows that each task wrote, if no earlier pass has summed that up."""

    def count_classes(self, column: str, counts: Sequence[int]) -> None:
        earlier = self.class_counts.get(column, [0] * len(counts))
        self.class_counts[column] = [count + more for count, more in zip(earlier, counts, strict=True)]

    def add_rows(self, split: str, total: int) -> None:
        """Add a sum of hashes of rows to that of a split; one of rows that leave is negative."""
        self.row_sums[split] = (self.row_sums.get(split, 0) + total) % MODULUS

    def refuse(self, reason: str, record: str, rows: int = 1) -> None:
        self.refused[reason] += rows
        self.samples[reason] = min(record, self.samples.get(reason, record))

    def add(self, other: "Report") -> None:
        if other.row_groups:
            self.row_groups = join_row_groups([collect_row_groups(groups) for groups in (self.row_groups, other.row_groups)])
        self.quarantine.update(other.quarantine)  # unlike +=, which looks at all files again for each task
        self.side_files += other.side_files
        self.page += other.page
        for split, total in other.row_sums.items():
            self.add_rows(split, total)
        self.superseded += other.superseded
        self.accepted += other.accepted
        self.expected_rows += other.expected_rows
        for column, class_counts in other.class_counts.items():
            self.count_classes(column, class_counts)
        for reason, rows in other.refused.items():
            self.refuse(reason, other.samples[reason], rows)

    def to_batch(self) -> pa.RecordBatch:
        """The report as the one row that a task returns, of REPORT_SCHEMA."""
        values = {name: value for name, value in vars(self).items() if name != "row_groups"}
        kinds = pa.list_(pa.struct(list(ROW_GROUPS)))
        return pa.record_batch(
            {"report": [json.dumps(values)], "row_groups": pa.array([[asdict(group) for group in self.row_groups]], kinds)}
        )


def merge_reports(rows: pa.Table) -> Report:
    """Merge the collected rows of REPORT_SCHEMA, or those without row groups, into one report."""
    report = Report()
    for text in rows["report"].to_pylist():
        values = json.loads(text)
        report.add(Report(**{**values, **{name: Counter(values[name]) for name in ("refused", "quarantine")}}))
    if "row_groups" in rows.column_names:
        flat = rows["row_groups"].combine_chunks().flatten()
        batch = pa.RecordBatch.from_arrays(
            [values.cast(kind.type) for values, kind in zip(flat.flatten(), ROW_GROUPS, strict=True)], schema=ROW_GROUPS
        )
        report.row_groups = RowGroups(compact(pa.Table.from_batches([batch]).to_batches(BATCH_ROWS), len(batch)))
    return report


def commit(
    filesystem: FileSystem,
    root: str,
    manifest: Manifest,
    row_groups: Sequence[RowGroup],
    quarantine: Mapping[str, int] | None = None,
    sources: Sources | None = None,
    side_files: Collection[str] = (),
) -> Manifest:
    """Publish `manifest`, with the summary of `sources`, in the folder `root` and return the manifest that is now there: ours, or an equal
    earlier one.

    The files that count are those of `row_groups`, the `side_files`, such as keys and raw rows, and those that `quarantine` gives the rows
    of; all paths are relative to `root`. Raises DatasetError if rows do not balance, or if an earlier manifest has the same inputs and
    another content."""
    quarantine = quarantine or {}
    groups = collect_row_groups(row_groups)
    if manifest.balance:
        check_balance(manifest.balance, int(groups.rows.sum()), sum(quarantine.values()))
    remove_unnamed(filesystem, root, manifest.attempt, {*quarantine, *side_files, *groups.files})
    manifest = manifest.model_copy(update={"row_groups_checksum": write_index(filesystem, root, manifest.attempt, groups)})
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
            f"make it deterministic, and remove {', '.join([root, *_sharing_versions(filesystem, root)])} to take the new rows"
        )
    return earlier


def _sharing_versions(filesystem: FileSystem, root: str) -> list[str]:
    """The folders of versions that share parts of the one in `root`, and cannot be read without it."""
    folder, _, name = root.rpartition("/")
    shared = read_shared_folders(filesystem, folder).versions
    return sorted({f"{folder}/{version}" for place, versions in shared.items() if place.version == name for version in versions})


def write_index(filesystem: FileSystem, root: str, attempt: str, row_groups: Sequence[RowGroup]) -> str:
    """Write the index of an attempt's row groups, and return its checksum. There may be no other file yet: an increment may have only rows
    that the query leaves out."""
    storage.make_folder(filesystem, root)
    groups = collect_row_groups(row_groups)
    return write_table(filesystem, row_groups_path(root, attempt), ROW_GROUPS, groups.batches(), PART_COLUMNS)


def read_manifest(filesystem: FileSystem, root: str) -> Manifest | None:
    """The manifest of the version in the folder `root`; None if there is no version."""
    text = storage.read(filesystem, f"{root}/manifest.json")
    return None if text is None else parse_manifest(text, f"{root}/manifest.json")


def row_groups_path(root: str, attempt: str) -> str:
    return f"{root}/{INDEX}-{attempt}.parquet"


def sources_path(root: str, attempt: str) -> str:
    return f"{root}/sources-{attempt}.parquet"


def remove_attempt(filesystem: FileSystem, root: str, attempt: str) -> None:
    for kind in FOLDERS:
        storage.remove_folder(filesystem, f"{root}/{kind}-{attempt}")
    for kind in FILES:
        path = f"{root}/{kind}-{attempt}.parquet"
        if filesystem.get_file_info(path).type != FileType.NotFound:
            filesystem.delete_file(path)


def remove_debris(filesystem: FileSystem, folder: str, age_seconds: float = DEBRIS_AGE_SECONDS) -> None:
    """Remove the files of dead attempts at all versions in a dataset's folder: those that no manifest and no other version's index names,
    and that have not been written to for so long. Removes nothing of a version whose manifest cannot be read, since it may name any of
    them, and nothing at all if the index of a version cannot be read."""
    dead, committed, doubtful = dict[PartFolder, str](), set[str](), set[str]()
    for entry in storage.entries(filesystem, folder):
        if not VERSION_NAME.fullmatch(entry.base_name):
            continue
        try:
            manifest = read_manifest(filesystem, entry.path)
        except DatasetError as error:
            log.warning("old attempts stay: %s", error)
            doubtful.add(entry.path)
            continue
        named = manifest.attempts if manifest else frozenset[str]()
        committed |= {row_groups_path(entry.path, attempt) for attempt in named}
        attempts = find_dead_attempts(filesystem, entry.path, named, age_seconds)
        dead |= {PartFolder(entry.base_name, attempt): entry.path for attempt in attempts}
    if not dead:
        return  # most often, so that no index is read
    shared = read_shared_folders(filesystem, folder)
    if faults := [fault for path, fault in shared.faults.items() if path in committed or path.rpartition("/")[0] in doubtful]:
        log.warning("old attempts stay: %s", faults[0])
        return
    for place, root in dead.items():
        if place not in shared.versions:
            remove_attempt(filesystem, root, place.attempt)


def find_dead_attempts(filesystem: FileSystem, root: str, committed: Collection[str], age_seconds: float = DEBRIS_AGE_SECONDS) -> list[str]:
    """The attempts other than the committed ones that have not been written to for so long. Folders on an object store have no time of
    their own, and do not count."""
    newest: dict[str, float] = {}
    for entry in storage.entries(filesystem, root):
        kind, _, attempt = entry.base_name.removesuffix(".parquet").partition("-")
        if kind not in (*FOLDERS, *FILES) or not attempt or attempt in committed:
            continue  # a committed attempt may have a hundred thousand files, which nobody needs to list
        for file in [entry, *([] if entry.is_file else storage.entries(filesystem, entry.path, recursive=True))]:
            if file.is_file or file.mtime:
                written = file.mtime.timestamp() if file.mtime else time.time()
                newest[attempt] = max(newest.get(attempt, 0.0), written)
    return [attempt for attempt, written in newest.items() if time.time() - written >= age_seconds]


def remove_unnamed(filesystem: FileSystem, root: str, attempt: str, named: set[str]) -> None:
    """Remove files of this attempt that no report names: a retried task leaves one."""
    for kind in FOLDERS:
        for entry in storage.entries(filesystem, f"{root}/{kind}-{attempt}", recursive=True):
            if entry.type == FileType.File and entry.path.removeprefix(root).lstrip("/") not in named:
                filesystem.delete_file(entry.path)
