"""Decides what goes of a dataset and its trainings, and removes it."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Literal

from pipelines.config import Config
from pipelines.data.versions import storage
from pipelines.data.versions.erasures import dataset_lock, refuse_unfinished_erasures
from pipelines.errors import DatasetError, TrainingError
from pipelines.lifecycle.clean.policy import (
    Reasons,
    order_removals,
    reasons_by_policy,
    reasons_by_reference,
    reasons_by_use,
    removal_reason,
)
from pipelines.lifecycle.clean.removal import empty_folder, hide_version, remove_attempts
from pipelines.lifecycle.clean.stored_versions import StoredVersion, folder_bytes, read_stored_versions
from pipelines.tracking.dataset_readers import EndedTraining, dataset_use, unknown_runs
from pipelines.train.checkpoint.run_directory import RunDirectory

_CHECKPOINTS = "checkpoints"
_DAY_SECONDS = 24 * 3600


@dataclass(frozen=True)
class CleaningItem:
    """A version, or files that belong to none, and what becomes of them."""

    kind: Literal["version", "attempts", "leftovers", "checkpoints"]
    name: str
    """Of the version, or the id of the run."""
    path: str
    goes: bool
    reason: str
    bytes: int = 0
    """Of the files that go; 0 for what stays."""


@dataclass(frozen=True)
class Cleaning:
    """The items that were removed, or would be, and those that stay."""

    items: tuple[CleaningItem, ...]
    is_dry_run: bool

    @property
    def bytes(self) -> int:
        """Bytes that were freed, or would be."""
        return sum(item.bytes for item in self.items)


@dataclass(frozen=True)
class _Step:
    item: CleaningItem
    remove: Callable[[], object] = bool


def clean_dataset(config: Config, yes: bool = False, tell_item: Callable[[CleaningItem], None] = lambda item: None) -> Cleaning:
    """Decide what goes of a dataset and of its trainings, and with `yes` remove it. `tell_item` is told of each item, once it is removed.

    Raises TrackingError, and removes nothing, if MLflow cannot say who needs the versions; DatasetError if an ETL is at work, or an erasure
    unfinished; DatasetError or TrainingError if a store fails. Then the next cleaning goes on."""
    filesystem, folder = storage.locate(config.dataset.path)
    with dataset_lock(config.dataset.path, alone=True) if yes else nullcontext():
        refuse_unfinished_erasures(filesystem, folder)
        return _clean(config, yes, tell_item)


def _clean(config: Config, yes: bool, tell_item: Callable[[CleaningItem], None]) -> Cleaning:
    use = dataset_use(config)
    stored = read_stored_versions(config.dataset.path)
    reasons = dict(reasons_by_policy(stored, config.dataset.keep))
    candidates = [version for version in stored if version.manifest and version.name not in reasons]
    unknown = unknown_runs(config.tracking.uri, {version.manifest.run_id for version in candidates if version.manifest})
    reasons |= reasons_by_use(candidates, use, unknown)
    reasons |= reasons_by_reference(stored, reasons)
    leaving = order_removals([version for version in candidates if version.name not in reasons])
    sizes = {version.name: folder_bytes(version.filesystem, version.root) for version in leaving}
    hidden = [version for version in leaving if hide_version(version)] if yes else leaving
    steps = chain(
        _steps_of_versions(config, stored, reasons, hidden, sizes),
        _steps_of_attempts(stored, reasons, {version.name for version in leaving}),
        _steps_of_checkpoints(use.trainings, config.dataset.keep.days),
    )
    items = []
    for step in steps:
        if yes and step.item.goes:
            step.remove()
        tell_item(step.item)
        items.append(step.item)
    return Cleaning(tuple(items), is_dry_run=not yes)


def _steps_of_versions(
    config: Config, stored: Sequence[StoredVersion], reasons: Reasons, hidden: Sequence[StoredVersion], sizes: dict[str, int]
) -> Iterator[_Step]:
    """All versions, the newest first: those that stay with the reason, and those that go, which are hidden."""
    by_name = {version.name: version for version in hidden}
    for version in sorted((version for version in stored if version.is_version), key=lambda version: -version.confirmed):
        name, root = version.name, version.root
        if name in by_name:
            reason = removal_reason(version, config.dataset.keep)
            attempt = version.manifest.attempt if version.manifest else ""
            item = CleaningItem("version", name, root, goes=True, reason=reason, bytes=sizes[name])
            yield _Step(item, lambda version=version, attempt=attempt: empty_folder(version, attempt))  # type: ignore[misc]
        else:
            reason = reasons.get(name, "it was made, confirmed or removed by another command just now")
            yield _Step(CleaningItem("version", name, root, goes=False, reason=reason))


def _steps_of_attempts(stored: Sequence[StoredVersion], reasons: Reasons, leaving: set[str]) -> Iterator[_Step]:
    """The files of removals and attempts that did not come to their end, in folders of versions that stay and of none."""
    shared = {(folder.version, folder.attempt) for version in stored for folder in version.part_folders}
    for version in stored:
        name, root = version.name, version.root
        if name in leaving or version.fault:
            continue
        removable = {name for name, attempt in version.attempts.items() if attempt.is_old or name == version.removed_attempt}
        dead = {attempt for attempt in removable if (name, attempt) not in shared and attempt not in version.own_attempts}
        dead -= version.manifest.attempts if version.manifest else set()  # old files of an erasure stay until its grace time is over
        is_abandoned = dead == version.attempts.keys() and (version.is_removed or version.is_old or bool(dead))
        if version.manifest is None and version.is_removed and name in reasons:
            yield _Step(CleaningItem("leftovers", name, root, goes=False, reason=f"left behind by a removal, but {reasons[name]}"))
        elif version.manifest is None and is_abandoned and name not in reasons:
            cause = "a removal that was interrupted" if version.is_removed else "attempts that died more than a day ago"
            item = CleaningItem("leftovers", name, root, True, f"left behind by {cause}", folder_bytes(version.filesystem, root))
            yield _Step(item, lambda version=version: empty_folder(version, version.removed_attempt))  # type: ignore[misc]
        elif dead or version.is_removed:
            size = sum(version.attempts[attempt].bytes for attempt in dead)
            item = CleaningItem("attempts", name, root, True, "left behind by attempts that died more than a day ago", size)
            yield _Step(item, lambda version=version, dead=dead: remove_attempts(version, dead))  # type: ignore[misc]


def _steps_of_checkpoints(trainings: Sequence[EndedTraining], days: float) -> Iterator[_Step]:
    """The checkpoints of trainings that ended longer ago. Weights and the log of digests stay, by which a run is verified."""
    for training in trainings:
        if time.time() - training.ended <= days * _DAY_SECONDS:
            continue
        path = f"{training.folder}/{_CHECKPOINTS}"
        ended = f"its run is {training.status} since {datetime.fromtimestamp(training.ended, UTC):%Y-%m-%d}"
        try:
            directory = RunDirectory(training.folder)
            if not directory.has(_CHECKPOINTS):
                continue
            size = folder_bytes(directory.filesystem, f"{directory.path}/{_CHECKPOINTS}")
        except (TrainingError, DatasetError) as error:
            yield _Step(CleaningItem("checkpoints", training.run_id, path, goes=False, reason=f"{ended}, but {error}"))
            continue
        lost = "" if training.status == "FINISHED" else ", and begins anew if it is run again"
        item = CleaningItem("checkpoints", training.run_id, path, goes=True, reason=ended + lost, bytes=size)
        yield _Step(item, lambda directory=directory: directory.remove(_CHECKPOINTS))  # type: ignore[misc]
