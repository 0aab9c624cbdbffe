"""Makes the new index and manifest of each version that refers to parts which were written again, and puts them in place of the old ones.

Whoever has opened an old manifest goes on reading its files, which stay until the grace time is over.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow.types as types

from pipelines.config.messages.words import show_count
from pipelines.data.features.raw import is_list
from pipelines.data.versions import storage
from pipelines.data.versions.commit import read_manifest, row_groups_path, sources_path, write_index
from pipelines.data.versions.manifest import SPLITS, Erasure, Folds, Manifest, content_digest, split_summaries
from pipelines.data.versions.part_folders import path_in_version
from pipelines.data.versions.parts import RowGroup
from pipelines.data.versions.rows_digest import rows_sum
from pipelines.data.versions.schema import schema_from_text
from pipelines.data.versions.versions import Version, read_version
from pipelines.errors import DatasetError
from pipelines.lifecycle.erasure.parts import ReplacedPart
from pipelines.lifecycle.erasure.search import parts_by_path
from pipelines.lifecycle.statements.croissant import croissant_path

Replaced = Mapping[str, ReplacedPart]
"""Parts that were written again, by the paths of the old ones relative to the dataset's folder."""


def publish(filesystem: Any, folder: str, version: str, name: str, replaced: Replaced) -> tuple[Manifest, dict[str, int]]:
    """Replace the manifest of a version, unless that has happened, and return it with the rows that were erased by split. Raises
    DatasetError if the version does not exist any more."""
    root = f"{folder}/{version}"
    manifest = read_manifest(filesystem, root)
    if manifest is None:
        raise DatasetError(f"{root} has no manifest any more, so that the erasure cannot go on; restore it, and run the same command again")
    published = next((erasure for erasure in manifest.erasures if erasure.certificate == name), None)
    if published:
        return manifest, published.rows
    opened = read_version(filesystem, root, manifest)
    concerned = {path: replaced[path] for path in parts_by_path(opened) if path in replaced}
    groups = _row_groups(opened, concerned)
    rows = {split: sum(part.part.removed for part in concerned.values() if part.split == split) for split in SPLITS}
    manifest = _without_rows(manifest, groups, list(concerned.values()), {split: count for split, count in rows.items() if count}, name)
    manifest = manifest.model_copy(update={"row_groups_checksum": write_index(filesystem, root, name, groups)})
    if manifest.sources_checksum:
        with storage.store_errors(root):
            filesystem.copy_file(sources_path(root, opened.manifest.attempt), sources_path(root, name))
    storage.remove_file(filesystem, croissant_path(root))  # it describes the parts from before
    storage.put_file(filesystem, f"{root}/manifest.json", manifest.to_json())
    return manifest, manifest.erasures[-1].rows


def table_paths(name: str, manifest: Manifest) -> list[str]:
    """The index and the list of sources of the version in the folder `name`, relative to the dataset's folder."""
    attempt = manifest.attempt
    return [row_groups_path(name, attempt), *([sources_path(name, attempt)] if manifest.sources_checksum else [])]


def redact_profile(manifest: Manifest, profile: Mapping[str, Any], train_rows: int) -> dict[str, Any]:
    """The profile without values that may be those of `train_rows` rows alone: frequent ones that no more rows have, and the smallest and
    the largest. Of lists the profile counts elements, so all their values go."""
    if not train_rows:
        return dict(profile)
    kinds = {field.name: field.type for field in schema_from_text(manifest.raw_schema)} if manifest.raw_schema else {}
    redacted = {}
    for column, statistics in profile.items():
        statistic = {name: value for name, value in statistics.items() if name not in ("minimum", "maximum")}
        if "most_frequent" in statistic:
            is_counted_by_row = column in kinds and not is_list(kinds[column]) and not types.is_nested(kinds[column])
            frequent = statistic["most_frequent"].items() if is_counted_by_row else ()
            statistic["most_frequent"] = {value: rows for value, rows in frequent if rows > train_rows}
        redacted[column] = statistic
    return redacted


def _row_groups(version: Version, replaced: Replaced) -> list[RowGroup]:
    """All row groups of the version, with those of the replaced parts in their places."""
    row_groups, originals = list[RowGroup](), version.groups_by_part()
    for path, groups in parts_by_path(version).items():
        original = originals[path_in_version(version.folder, path)]
        if path not in replaced:
            row_groups += original
            continue
        new = (replace(group, file=f"{groups.owner}/{group.file}", part=original[0].part) for group in replaced[path].part.row_groups)
        row_groups += [replace(group, file=path_in_version(version.folder, group.file)) for group in new]
    return row_groups


def _without_rows(manifest: Manifest, groups: list[RowGroup], parts: list[ReplacedPart], rows: dict[str, int], name: str) -> Manifest:
    """The manifest of the attempt `name`, with what follows from the row groups that are left."""
    encoders = {
        column: fitted.model_copy(update={"class_counts": _counts_left(fitted.class_counts, column, parts)})
        if fitted.class_counts
        else fitted
        for column, fitted in manifest.encoders.items()
    }
    sums = None
    if all(summary.rows_digest for summary in manifest.splits.values()):
        removed = {split: sum(part.part.removed_sum for part in parts if part.split == split) for split in SPLITS}
        sums = {split: rows_sum(summary.rows_digest) - removed[split] for split, summary in manifest.splits.items()}
    erasure = Erasure(certificate=name, digest_before=manifest.digest, attempt_before=manifest.attempt, rows=rows)
    total = show_count(sum(rows.values()), "row")
    note = f"erasure {name}: {total} erased; counts of the ETL, of its quarantine and in the profile are from before"
    return manifest.model_copy(
        update={
            "attempt": name,
            "digest": content_digest(encoders, groups),
            "encoders": encoders,
            "splits": split_summaries(encoders, groups, sums),
            "folds": _folds_left(manifest.folds, parts),
            "profile": redact_profile(manifest, manifest.profile, rows.get(SPLITS[0], 0)),
            "notes": (*manifest.notes, note),
            "erasures": (*manifest.erasures, erasure),
        }
    )


def _counts_left(counts: tuple[int, ...], column: str, parts: list[ReplacedPart]) -> tuple[int, ...]:
    removed = Counter[int]()
    for part in parts:
        if part.split == SPLITS[0]:
            removed.update(part.part.removed_classes.get(column, {}))
    return tuple(count - removed[number] for number, count in enumerate(counts))


def _folds_left(folds: Folds | None, parts: list[ReplacedPart]) -> Folds | None:
    """Folds are numbered from 1."""
    if folds is None:
        return None
    counts = {column: _counts_left((0, *rows), column, parts)[1:] for column, rows in folds.rows.items()}
    return folds.model_copy(update={"rows": counts})
