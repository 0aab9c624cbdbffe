"""Writes parts and files of the quarantine again without some rows, into the attempt of an erasure, and takes checksums of all files."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pyarrow.fs import FileSystem

from pipelines.data.versions.commit import Attempt
from pipelines.data.versions.manifest import Manifest
from pipelines.data.versions.parts import RowGroup, file_checksum
from pipelines.data.versions.raw_inputs import RAW_ROWS, side_file
from pipelines.data.versions.rewrite import RewrittenPart, check_part, rewrite_part
from pipelines.data.versions.row_keys import KEYS
from pipelines.lifecycle.erasure.quarantine import write_without
from pipelines.lifecycle.erasure.search import KeySearch, quarantine_files

Checksums = dict[str, str]
"""`xxh3:…` of files, by their paths relative to the dataset's folder."""


@dataclass(frozen=True)
class ReplacedPart:
    """A part that was written again."""

    part: RewrittenPart
    """Its paths are relative to the version that owns it."""
    split: str
    removed: Checksums
    """Of the old part and of the files beside it."""
    written: Checksums

    def to_values(self) -> dict[str, Any]:
        """As JSON has it; sums of hashes are larger than its numbers."""
        return {**asdict(self), "part": {**asdict(self.part), "removed_sum": f"{self.part.removed_sum:x}"}}

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> "ReplacedPart":
        part = dict(values["part"])
        part["row_groups"] = [RowGroup(**group) for group in part["row_groups"]]
        part["removed_sum"] = int(part["removed_sum"], 16)
        part["removed_classes"] = {
            column: {int(number): rows for number, rows in classes.items()} for column, classes in part["removed_classes"].items()
        }
        return cls(RewrittenPart(**part), values["split"], dict(values["removed"]), dict(values["written"]))


def columns_to_count(manifest: Manifest) -> list[str]:
    """The columns whose classes a manifest counts: those of masks and classes in the training split, and those of folds."""
    return [*(name for name, fitted in manifest.encoders.items() if fitted.class_counts), *(manifest.folds.rows if manifest.folds else ())]


def replace_part(search: KeySearch, name: str, path: str) -> ReplacedPart:
    """Write the part at `path` again, without the rows of the search, in the attempt `name` of the version that owns it. Raises
    CorruptError if a byte of it was altered, which a new checksum would hide."""
    version = next(version for name_of_version, version in search.versions.items() if path in search.parts[name_of_version])
    owner, removal = search.parts[version.folder][path].owner, search.removals[path]
    root, filesystem = f"{search.folder}/{owner}", search.filesystem
    part_checksum = check_part(filesystem, f"{search.folder}/{path}", removal.groups)
    part = rewrite_part(filesystem, root, Attempt(filesystem, root, name), version.columns, columns_to_count(version.manifest), removal)
    old = removal.groups[0].file
    old_files = [side_file(old, KEYS), *_present(filesystem, root, side_file(old, RAW_ROWS))]
    new_files = [*dict.fromkeys(group.file for group in part.row_groups), *part.side_files]
    removed = {path: part_checksum} | {f"{owner}/{file}": file_checksum(filesystem, f"{root}/{file}") for file in old_files}
    written = {f"{owner}/{file}": file_checksum(filesystem, f"{root}/{file}") for file in new_files}
    return ReplacedPart(part, removal.groups[0].split, removed, written)


def replace_quarantine(search: KeySearch, name: str, version: str) -> Checksums:
    """Write the quarantine of a version as that of the attempt `name`, without the rows of the search. Returns the new files."""
    filesystem, written = search.filesystem, {}
    for file in quarantine_files(search, version):
        target = f"{version}/quarantine-{name}/{file.rpartition('/')[2]}"
        write_without(filesystem, f"{search.folder}/{file}", f"{search.folder}/{target}", search.quarantined.get(file, ()))
        written[target] = file_checksum(filesystem, f"{search.folder}/{target}")
    return written


def _present(filesystem: FileSystem, root: str, file: str) -> list[str]:
    return [file] if filesystem.get_file_info(f"{root}/{file}").is_file else []
