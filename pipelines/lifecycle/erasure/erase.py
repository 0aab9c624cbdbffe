"""Erases rows by their keys, after erasures that were interrupted; and says what was erased, or would be."""

import logging
import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from pyarrow.fs import FileSystem

from pipelines.config import Config
from pipelines.config.durations import duration_seconds
from pipelines.data.versions import storage
from pipelines.data.versions.commit import DEBRIS_AGE_SECONDS, remove_debris
from pipelines.data.versions.erasures import ERASURES, dataset_lock
from pipelines.data.versions.part_folders import VERSION_NAME
from pipelines.errors import ConfigError, DatasetError
from pipelines.lifecycle.erasure import certificate as certificates
from pipelines.lifecycle.erasure.erased_keys import Key, parse_keys
from pipelines.lifecycle.erasure.journal import REMOVE, begin, read_journals
from pipelines.lifecycle.erasure.phases import ErasureJob
from pipelines.lifecycle.erasure.search import KeySearch, search
from pipelines.runtime.imports import import_modules, meanwhile

if TYPE_CHECKING:
    from pipelines.lifecycle.erasure.tracked import TrackedErasure

log = logging.getLogger(__name__)

DAY = 86_400.0
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
    seconds = duration_seconds(text)
    if text and seconds is None:
        raise ConfigError(
            f"--grace {text} is no time; give seconds, or minutes, hours or days as in 90m, 12h or 7d; 0 removes files at once"
        )
    return seconds


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
            journal.record.name: certificates.time_text(journal.record.due) if journal.record.phase == REMOVE else "unfinished"
            for journal in read_journals(filesystem, folder)
        }
    return outcome


def _finish_earlier(job: ErasureJob, outcome: ErasureResult, is_locked: bool) -> None:
    """Go on with erasures that were interrupted, and with those whose grace time is over."""
    if is_locked:
        _remove_drafts(job.filesystem, job.folder)
    for journal in read_journals(job.filesystem, job.folder):
        was_interrupted = journal.record.phase != REMOVE
        outcome.certificates.append(job.go_on(journal))
        if was_interrupted:
            outcome.unsearchable |= journal.record.unsearchable
            outcome.models += (journal.record.tracked or {}).get("models", [])


def _erase_keys(
    job: ErasureJob, outcome: ErasureResult, keys: Sequence[Key], predictions: Sequence[str], is_confirmed: bool, is_locked: bool
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
        journal.record = journal.record.model_copy(update={"tracked": asdict(planned)})
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
