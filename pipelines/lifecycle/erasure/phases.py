"""Takes an erasure through its phases, each of which the journal records before it is entered."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyarrow.fs import FileSystem, LocalFileSystem

from pipelines.config import Config
from pipelines.data.versions import storage
from pipelines.data.versions.commit import FOLDERS, read_manifest, remove_attempt
from pipelines.data.versions.parts import file_checksum
from pipelines.lifecycle.erasure import certificate as certificates
from pipelines.lifecycle.erasure.erased_keys import Key
from pipelines.lifecycle.erasure.journal import PUBLISH, REMOVE, TRACKING, WRITE, ErasedVersion, ErasureRecord, Journal, due_after
from pipelines.lifecycle.erasure.parts import ReplacedPart, replace_part, replace_quarantine
from pipelines.lifecycle.erasure.publish import publish, table_paths
from pipelines.lifecycle.erasure.quarantine import text_matcher
from pipelines.lifecycle.erasure.search import KeySearch, map_in_threads, quarantine_files, search

if TYPE_CHECKING:
    from pipelines.lifecycle.erasure.tracked import TrackedErasure


@dataclass(frozen=True)
class ErasureJob:
    """Takes an erasure through its phases."""

    config: Config
    filesystem: FileSystem
    folder: str
    """Of the dataset."""
    command: str
    """The command that trains again."""
    grace_seconds: float | None
    """In place of those that the erasures began with; None to keep them."""

    def plan_tracked(self, result: KeySearch, keys: Sequence[Key]) -> "TrackedErasure":
        """Find what is to be changed in MLflow, and the models that were trained on the rows."""
        from pipelines.lifecycle.erasure.tracked import ErasedRows, erase_tracked  # noqa: PLC0415

        versions = ((name, result.versions[name]) for name in result.concerned)
        erased = [ErasedRows(version.manifest, result.rows(name), result.positions(name), version.digest) for name, version in versions]
        return erase_tracked(self.config, erased, self.command, text_matcher(keys), dry=True)

    def go_on(self, journal: Journal) -> str:
        """Take all phases that are left. Returns the path of the certificate."""
        record = journal.record
        if record.phase == WRITE:
            for entry in storage.entries(self.filesystem, self.folder):
                if not entry.is_file:
                    remove_attempt(self.filesystem, entry.path, record.name)
            self.write(journal, search(self.config.dataset.path, record.key_columns, record.keys, self.config.name))
        if journal.record.phase == PUBLISH:
            self._publish(journal)
        if journal.record.phase == TRACKING:
            self._track(journal)
        return self._remove(journal)

    def write(self, journal: Journal, result: KeySearch) -> None:
        """Write the parts concerned again, and the quarantines of all versions concerned."""
        names, record = list(result.removals), journal.record
        replaced = dict(zip(names, map_in_threads(partial(replace_part, result, record.name), names), strict=True))
        removed = {file: checksum for part in replaced.values() for file, checksum in part.removed.items()}
        written = {file: checksum for part in replaced.values() for file, checksum in part.written.items()}
        for name in result.concerned:
            written |= replace_quarantine(result, record.name, name)
            old = [*quarantine_files(result, name), *table_paths(name, result.versions[name].manifest)]
            removed |= {file: file_checksum(self.filesystem, f"{self.folder}/{file}") for file in old}
        versions = {
            name: ErasedVersion(quarantined=result.count_quarantined(name), positions=result.positions(name)) for name in result.concerned
        }
        journal.enter(
            PUBLISH,
            versions=versions,
            unsearchable=result.unsearchable,
            records=[dict(values) for values in result.records(record.keys)],
            key_hashes=certificates.hash_first_records(record.keys, result.keys.values(), record.salt),
            replaced={path: part.to_values() for path, part in replaced.items()},
            removed=removed,
            written=written,
        )

    def _publish(self, journal: Journal) -> None:
        """Put new manifests in place of the old ones, one version after another."""
        record = journal.record
        replaced = {path: ReplacedPart.from_values(values) for path, values in record.replaced.items()}
        versions, written = dict(record.versions), dict(record.written)
        for name, version in record.versions.items():
            manifest, rows = publish(self.filesystem, self.folder, name, record.name, replaced)
            facts = {
                "rows": rows,
                "digest_before": next(erasure.digest_before for erasure in manifest.erasures if erasure.certificate == record.name),
                "digest_after": manifest.digest,
                "columns_with_texts": certificates.columns_with_texts(manifest),
            }
            versions[name] = version.model_copy(update=facts)
            written |= {file: file_checksum(self.filesystem, f"{self.folder}/{file}") for file in table_paths(name, manifest)}
        journal.enter(TRACKING, versions=versions, written=written, replaced={})

    def _track(self, journal: Journal) -> None:
        """Erase from MLflow and from outputs of predictions, and write the certificate. What is to be changed is recorded before, since the
        second of two attempts does not find what the first has removed."""
        from pipelines.lifecycle.erasure.predictions import erase_predictions  # noqa: PLC0415

        record = journal.record
        erase_output = partial(erase_predictions, name=record.name, keys=record.keys, records=record.records)
        if record.tracked is None or record.outputs is None:
            outputs = [asdict(erase_output(path, dry=True)) for path in record.predictions]
            journal.enter(TRACKING, tracked=record.tracked or asdict(self._erase_tracked(record, dry=True)), outputs=outputs)
        for path in record.predictions:
            erase_output(path, dry=False)
        unchanged = self._erase_tracked(record, dry=False).unchanged
        due = due_after(record.grace_seconds if self.grace_seconds is None else self.grace_seconds)
        versions = {name: version.model_copy(update={"positions": {}}) for name, version in record.versions.items()}
        changes = {"tracked": {**(journal.record.tracked or {}), "unchanged": unchanged}, "due": due, "versions": versions}
        self._certify(journal.record.model_copy(update=changes), finished="")
        journal.enter(REMOVE, **changes, keys=[], records=[])

    def _erase_tracked(self, record: ErasureRecord, dry: bool) -> "TrackedErasure":
        from pipelines.lifecycle.erasure.tracked import ErasedRows, erase_tracked  # noqa: PLC0415

        erased = [
            ErasedRows(manifest, version.rows, version.positions, version.digest_before)
            for name, version in record.versions.items()
            if (manifest := read_manifest(self.filesystem, f"{self.folder}/{name}")) is not None
        ]
        return erase_tracked(self.config, erased, self.command, text_matcher(record.keys), dry)

    def _remove(self, journal: Journal) -> str:
        """Remove old files if the grace time is over. Returns the path of the certificate."""
        if self.grace_seconds is not None and (due := due_after(self.grace_seconds)) < journal.record.due:
            journal.enter(REMOVE, due=due)
        record = journal.record
        if due_after(0) < record.due:
            return certificates.certificate_path(self.folder, record.name)
        for file in record.removed:
            storage.remove_file(self.filesystem, f"{self.folder}/{file}")
        for output in record.outputs or ():
            filesystem, folder = storage.locate(output["path"])
            for file in output["old_files"]:
                storage.remove_file(filesystem, f"{folder}/{file}")
        for name in record.versions:
            _remove_empty_folders(self.filesystem, f"{self.folder}/{name}")
        path = self._certify(record, finished=certificates.time_text(due_after(0)))
        journal.delete()
        return path

    def _certify(self, record: ErasureRecord, finished: str) -> str:
        return certificates.write_certificate(self.filesystem, self.folder, self.config.name, record, finished)


def _remove_empty_folders(filesystem: FileSystem, root: str) -> None:
    """Remove folders of attempts in which no file is left, which a store does not have."""
    for entry in storage.entries(filesystem, root) if isinstance(filesystem, LocalFileSystem) else ():
        is_attempt = not entry.is_file and entry.base_name.partition("-")[0] in FOLDERS
        if is_attempt and not any(inner.is_file for inner in storage.entries(filesystem, entry.path, recursive=True)):
            storage.remove_folder(filesystem, entry.path)
