"""Erases rows by their keys, step by step, each of which the journal records before it is taken."""

import logging
import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from pyarrow.fs import FileSystem, LocalFileSystem

from pipelines.config import Config
from pipelines.data.versions import storage
from pipelines.data.versions.commit import DEBRIS_AGE_SECONDS, FOLDERS, read_manifest, remove_attempt, remove_debris
from pipelines.data.versions.erasures import ERASURES, dataset_lock
from pipelines.data.versions.part_folders import VERSION_NAME
from pipelines.data.versions.parts import file_checksum
from pipelines.errors import ConfigError, DatasetError
from pipelines.lifecycle.erasure import certificate as certificates
from pipelines.lifecycle.erasure.erased_keys import Key, parse_keys
from pipelines.lifecycle.erasure.journal import PUBLISH, REMOVE, TRACKING, WRITE, Journal, begin, due_after, read_journals
from pipelines.lifecycle.erasure.parts import ReplacedPart, quarantine_files, replace_part, replace_quarantine
from pipelines.lifecycle.erasure.publish import publish, table_paths
from pipelines.lifecycle.erasure.quarantine import text_matcher
from pipelines.lifecycle.erasure.search import KeySearch, map_in_threads, search
from pipelines.runtime.imports import import_modules, meanwhile

if TYPE_CHECKING:
    from pipelines.lifecycle.erasure.tracked import TrackedErasure

log = logging.getLogger(__name__)

DAY = 86_400.0
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": DAY}
_TRACKED = "pipelines.lifecycle.erasure.tracked"
_DRAFT = re.compile(r"\.(?:json|journal)\.[0-9a-f]{32}$")
"""Name of a file that `runtime.atomic` has not moved into its place."""


@dataclass
class ErasureResult:
    """The rows, artifacts and models that an erasure concerns."""

    versions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """`rows` by split and `quarantined` rows of each version that has some, by name."""
    unsearchable: dict[str, str] = field(default_factory=dict)
    """Why other versions could not be searched, by name."""
    artifacts: list[str] = field(default_factory=list)
    """Artifacts of runs that are removed or written again."""
    models: list[dict[str, Any]] = field(default_factory=list)
    """Runs that were trained on the rows, with what uses their models and the command that trains again."""
    running: list[str] = field(default_factory=list)
    """Runs that still train on the rows."""
    predictions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Rows in outputs of predictions that were named, and files without a column of the key, by output."""
    certificates: list[str] = field(default_factory=list)
    """Those that were written or completed now."""
    waiting: dict[str, str] = field(default_factory=dict)
    """When old files of an erasure may be removed, by its name; and `unfinished` for one that must go on."""

    @property
    def has_rows(self) -> bool:
        return bool(self.versions) or any(output["rows"] for output in self.predictions.values())


def read_grace(text: str) -> float | None:
    """The seconds of `3600`, `90m`, `12h` or `7d`; None for an empty text. Raises ConfigError for another text."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if text and not match:
        raise ConfigError(
            f"--grace {text} is no time; give seconds, or minutes, hours or days as in 90m, 12h or 7d; 0 removes files at once"
        )
    return float(match[1]) * _UNITS[match[2]] if match else None


def erase_rows(
    config: Config,
    texts: Sequence[str],
    grace_seconds: float | None = None,
    is_confirmed: bool = False,
    predictions: Sequence[str] = (),
    command: str = "lockstep train CONF.yaml",
) -> ErasureResult:
    """Erase the rows of the keys `texts`, such as `id=17`, from every version of the dataset's folder; unless `is_confirmed`, only say what
    would be erased. Without keys, go on with erasures that were interrupted, and remove old files whose grace time is over.

    `predictions` are outputs of predictions to erase from as well; `command` is the one that trains again. Raises ConfigError for a key
    that the dataset does not declare, DatasetError if an ETL is at work, TrackingError if MLflow cannot be used; the next call goes on."""
    keys = parse_keys(texts, config.dataset.key) if texts else []
    filesystem, folder = storage.locate(config.dataset.path)
    outcome = ErasureResult()
    job = ErasureJob(config, filesystem, folder, command, grace_seconds)
    may_change = is_confirmed or not texts
    with dataset_lock(config.dataset.path, alone=True) if may_change else nullcontext(False) as is_locked:
        if may_change:
            _finish_earlier(job, outcome, is_locked)
        if keys:
            _erase_keys(job, outcome, keys, predictions, is_confirmed, is_locked)
        outcome.waiting = {
            journal.name: certificates.time_text(journal.due) if journal.phase == REMOVE else "unfinished"
            for journal in read_journals(filesystem, folder)
        }
    return outcome


def _finish_earlier(job: "ErasureJob", outcome: ErasureResult, is_locked: bool) -> None:
    """Go on with erasures that were interrupted, and with those whose grace time is over."""
    if is_locked:
        _remove_drafts(job.filesystem, job.folder)
    for journal in read_journals(job.filesystem, job.folder):
        was_interrupted = journal.phase != REMOVE
        outcome.certificates.append(job.go_on(journal))
        if was_interrupted:
            outcome.unsearchable |= journal.values["unsearchable"]
            outcome.models += journal.values["tracked"]["models"]


def _erase_keys(
    job: "ErasureJob", outcome: ErasureResult, keys: Sequence[Key], predictions: Sequence[str], is_confirmed: bool, is_locked: bool
) -> None:
    """Search for keys, and erase their rows if that is confirmed."""
    config, journal, plans = job.config, None, list["TrackedErasure"]()
    with meanwhile(partial(import_modules, [_TRACKED])):  # MLflow takes seconds to import
        result = search(config.dataset.path, config.dataset.key, keys, config.name)
        if not result.versions and not result.unsearchable:
            raise DatasetError(f"{config.dataset.path} holds no dataset version; run jobs/etl.py with the same config first")
        _describe(outcome, result, keys, predictions)
        if is_confirmed:
            # Files of attempts that died may have the rows too. The lock says that no attempt is alive.
            remove_debris(job.filesystem, job.folder, age_seconds=0 if is_locked else DEBRIS_AGE_SECONDS)
        with meanwhile(lambda: plans.append(job.plan_tracked(result, keys))):
            if is_confirmed and outcome.has_rows:
                grace_seconds = DAY if job.grace_seconds is None else job.grace_seconds
                journal = begin(job.filesystem, job.folder, keys, grace_seconds, predictions)
                job.write(journal, result)
    (planned,) = plans
    outcome.artifacts, outcome.running = [*planned.removed, *planned.rewritten], planned.running
    outcome.models += planned.models
    if journal is not None:
        journal.values["planned"] = asdict(planned)
        outcome.certificates.append(job.go_on(journal))


def _describe(outcome: ErasureResult, result: KeySearch, keys: Sequence[Key], predictions: Sequence[str]) -> None:
    """Say what a search has found, and what the outputs of predictions hold."""
    outcome.unsearchable |= result.unsearchable
    outcome.versions = {name: {"rows": result.rows(name), "quarantined": result.count_quarantined(name)} for name in result.concerned}
    if predictions:
        from pipelines.lifecycle.erasure.predictions import erase_predictions  # noqa: PLC0415 - it imports pandas

        for path in predictions:
            output = erase_predictions(path, "", keys, result.records(keys), dry=True)
            outcome.predictions[path] = {"rows": output.rows, "without_key": output.without_key}


def _remove_drafts(filesystem: FileSystem, folder: str) -> None:
    """Remove what a killed process leaves of a file that was to appear whole: a draft of a journal has keys."""
    versions = [entry.path for entry in storage.entries(filesystem, folder) if VERSION_NAME.fullmatch(entry.base_name)]
    for entry in (entry for place in (f"{folder}/{ERASURES}", *versions) for entry in storage.entries(filesystem, place)):
        if entry.is_file and _DRAFT.search(entry.base_name):
            storage.remove_file(filesystem, entry.path)


@dataclass(frozen=True)
class ErasureJob:
    """Takes an erasure through its phases."""

    config: Config
    filesystem: FileSystem
    folder: str
    command: str
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
        if journal.phase == WRITE:
            for entry in storage.entries(self.filesystem, self.folder):
                if not entry.is_file:
                    remove_attempt(self.filesystem, entry.path, journal.name)
            keys = journal.values["keys"]
            self.write(journal, search(self.config.dataset.path, list(keys[0]), keys, self.config.name))
        if journal.phase == PUBLISH:
            self._publish(journal)
        if journal.phase == TRACKING:
            self._track(journal)
        return self._remove(journal)

    def write(self, journal: Journal, result: KeySearch) -> None:
        """Write the parts concerned again, and the quarantines of all versions concerned."""
        names = list(result.removals)
        replaced = dict(zip(names, map_in_threads(partial(replace_part, result, journal.name), names), strict=True))
        removed = {file: checksum for part in replaced.values() for file, checksum in part.removed.items()}
        written = {file: checksum for part in replaced.values() for file, checksum in part.written.items()}
        for name in result.concerned:
            written |= replace_quarantine(result, journal.name, name)
            old = [*quarantine_files(result, name), *table_paths(name, result.versions[name].manifest)]
            removed |= {file: file_checksum(self.filesystem, f"{self.folder}/{file}") for file in old}
        journal.enter(
            PUBLISH,
            versions={
                name: {"quarantined": result.count_quarantined(name), "positions": result.positions(name)} for name in result.concerned
            },
            unsearchable=result.unsearchable,
            records=[dict(record) for record in result.records(journal.values["keys"])],
            key_columns=list(journal.values["keys"][0]),
            key_hashes=certificates.hash_first_records(journal.values["keys"], result.keys.values(), journal.values["salt"]),
            replaced={path: part.to_values() for path, part in replaced.items()},
            removed=removed,
            written=written,
        )

    def _publish(self, journal: Journal) -> None:
        """Put new manifests in place of the old ones, one version after another."""
        replaced = {path: ReplacedPart.from_values(values) for path, values in journal.values["replaced"].items()}
        versions, written = dict(journal.values["versions"]), dict(journal.values["written"])
        for name, values in versions.items():
            manifest, rows = publish(self.filesystem, self.folder, name, journal.name, replaced)
            before = next(erasure.digest_before for erasure in manifest.erasures if erasure.certificate == journal.name)
            versions[name] = {
                **values,
                "rows": rows,
                "digest_before": before,
                "digest_after": manifest.digest,
                "columns_with_texts": certificates.columns_with_texts(manifest),
            }
            written |= {file: file_checksum(self.filesystem, f"{self.folder}/{file}") for file in table_paths(name, manifest)}
        journal.enter(TRACKING, versions=versions, written=written, replaced={})

    def _track(self, journal: Journal) -> None:
        """Erase from MLflow and from outputs of predictions, and write the certificate. What is to be changed is recorded before, since the
        second of two attempts does not find what the first has removed."""
        from pipelines.lifecycle.erasure.predictions import erase_predictions  # noqa: PLC0415
        from pipelines.lifecycle.erasure.tracked import ErasedRows, erase_tracked  # noqa: PLC0415

        values, keys = journal.values, [dict(key) for key in journal.values["keys"]]
        erased = []
        for name, version in values["versions"].items():
            manifest = read_manifest(self.filesystem, f"{self.folder}/{name}")
            if manifest is not None:
                erased.append(ErasedRows(manifest, version["rows"], version["positions"], version["digest_before"]))
        run = partial(erase_tracked, self.config, erased, self.command, text_matcher(keys))
        if "outputs" not in values:
            outputs = [erase_predictions(path, journal.name, keys, values["records"], dry=True) for path in values["predictions"]]
            planned = values.get("planned") or asdict(run(dry=True))
            journal.enter(TRACKING, planned=planned, outputs=[asdict(output) for output in outputs])
        for path in values["predictions"]:
            erase_predictions(path, journal.name, keys, values["records"], dry=False)
        unchanged = run(dry=False).unchanged
        grace = values["grace_seconds"] if self.grace_seconds is None else self.grace_seconds
        journal.values |= {"tracked": {**values["planned"], "unchanged": unchanged}, "due": due_after(grace)}
        for version in values["versions"].values():
            version.pop("positions")
        self._certify(journal, finished="")
        for name in ("keys", "records", "planned", "replaced"):
            journal.values.pop(name)
        journal.enter(REMOVE)

    def _remove(self, journal: Journal) -> str:
        """Remove old files if the grace time is over. Returns the path of the certificate."""
        if self.grace_seconds is not None and (due := due_after(self.grace_seconds)) < journal.due:
            journal.enter(REMOVE, due=due)
        if due_after(0) < journal.due:
            return certificates.certificate_path(self.folder, journal.name)
        for file in journal.values["removed"]:
            storage.remove_file(self.filesystem, f"{self.folder}/{file}")
        for output in journal.values["outputs"]:
            filesystem, folder = storage.locate(output["path"])
            for file in output["old_files"]:
                storage.remove_file(filesystem, f"{folder}/{file}")
        for name in journal.values["versions"]:
            _remove_empty_folders(self.filesystem, f"{self.folder}/{name}")
        path = self._certify(journal, finished=certificates.time_text(due_after(0)))
        journal.delete()
        return path

    def _certify(self, journal: Journal, finished: str) -> str:
        values = journal.values
        tracked = values["tracked"]
        return certificates.write_certificate(
            self.filesystem,
            self.folder,
            {
                "name": journal.name,
                "pipeline": self.config.name,
                "asked_by": values["asked_by"],
                "asked_at": values["asked_at"],
                "due": certificates.time_text(values["due"]),
                "finished": finished,
                "salt": values["salt"],
                "keys": values["key_hashes"],
                "key_columns": values["key_columns"],
                "versions": values["versions"],
                "unsearchable": values["unsearchable"],
                "removed": values["removed"],
                "written": values["written"],
                "predictions": values["outputs"],
                "artifacts": {name: tracked[name] for name in ("removed", "rewritten", "unchanged")},
                "models": tracked["models"],
                "running": tracked["running"],
                "notes": list(certificates.NOTES),
            },
        )


def _remove_empty_folders(filesystem: FileSystem, root: str) -> None:
    """Remove folders of attempts in which no file is left, which a store does not have."""
    for entry in storage.entries(filesystem, root) if isinstance(filesystem, LocalFileSystem) else ():
        is_attempt = not entry.is_file and entry.base_name.partition("-")[0] in FOLDERS
        if is_attempt and not any(inner.is_file for inner in storage.entries(filesystem, entry.path, recursive=True)):
            storage.remove_folder(filesystem, entry.path)
