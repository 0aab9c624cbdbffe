"""Removes what runs in MLflow keep of rows, and lists the models that were trained on them, with what uses these.

Removed are tables of single rows in an evaluation, with the figures and the page that show them, and the page about the data of an ETL,
with its samples. Manifests and profiles are written again without rare values. Models stay: their weights and their encoders were fitted on
the rows, so that only a new training is without them.
"""

import io
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.config import Config
from pipelines.data.versions import storage
from pipelines.data.versions.manifest import SPLITS, Manifest, parse_manifest
from pipelines.errors import DatasetError, LockstepError
from pipelines.lifecycle.erasure.publish import redact_profile
from pipelines.report.evaluation import CONTRIBUTIONS, FOLDER, WORST_ROWS, archive_name
from pipelines.tracking.dataset_users import DatasetUser, RunArtifacts, dataset_users, read_example

log = logging.getLogger(__name__)

ROW = "row"
"""Column of a table of single rows: the number of each in its split."""
_MANIFEST, _PROFILE, _DATA = "manifest.json", "profile.json", "data.json"


@dataclass(frozen=True)
class ErasedRows:
    """Rows that were erased from one version."""

    manifest: Manifest
    """The present one, before or after the erasure."""
    rows: Mapping[str, int]
    """By split; empty if only refused rows were erased."""
    positions: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Their numbers in each split, before the erasure; empty for folds, whose splits are not those of the version."""
    digest_before: str = ""

    @property
    def digests(self) -> set[str]:
        """All digests with which the version had the rows."""
        return {self.digest_before, *(erasure.digest_before for erasure in self.manifest.erasures)}


@dataclass
class TrackedErasure:
    """The changes of an erasure in MLflow."""

    removed: list[str] = field(default_factory=list)
    """Artifacts `run/path` and files of run directories."""
    rewritten: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)
    """Runs that still train on the rows, and will log more of them."""
    unchanged: list[str] = field(default_factory=list)
    """What could not be changed, with the reason."""
    models: list[dict[str, Any]] = field(default_factory=list)
    """Each run that was trained on the rows, with its models, versions, aliases, endpoint, and the command that trains it again."""


def erase_tracked(
    config: Config, erased: Sequence[ErasedRows], command: str, is_in_key: Callable[[str], bool], dry: bool
) -> TrackedErasure:
    """Remove artifacts with the rows from all runs on the versions, unless `dry`, and list them with the models. `command` trains again.
    Raises TrackingError if MLflow cannot be used."""
    outcome = TrackedErasure()
    for rows in erased:
        for user in dataset_users(config.tracking.uri, rows.digests):
            artifacts = RunArtifacts(config.tracking.uri, user)
            _erase_artifacts(outcome, user, artifacts, rows, dry)
            if user.kind != "etl" and rows.rows:
                outcome.models.append(_describe_models(config, user, command, is_in_key))
                if user.is_alive:
                    outcome.running.append(user.run_id)
    return outcome


def _erase_artifacts(outcome: TrackedErasure, user: DatasetUser, artifacts: RunArtifacts, rows: ErasedRows, dry: bool) -> None:
    paths = artifacts.paths()
    pages = [path for path in paths if path.endswith(".html") and "/" not in path]
    to_remove = [*pages, *(path for path in paths if path == _DATA)] if user.kind == "etl" else []
    splits = [split for split in SPLITS if rows.rows.get(split) or (rows.manifest.folds and rows.rows)] if user.kind != "etl" else []
    for split in splits:
        to_remove += _tables_with_rows(user, artifacts, [path for path in paths if path.startswith(f"{FOLDER}/{split}/")], rows, split)
    for path in dict.fromkeys([*to_remove, *(pages if to_remove else [])]):
        _change(outcome, outcome.removed, f"{user.run_id}/{path}", partial(artifacts.remove, path), dry)
    for path in (name for name in (_MANIFEST, _PROFILE) if name in paths and rows.rows.get(SPLITS[0])):
        _redact_artifact(outcome, user, artifacts, path, rows, dry)
    for split in splits if user.folder else ():
        _remove_archive(outcome, user.folder, split, dry)


def _redact_artifact(outcome: TrackedErasure, user: DatasetUser, artifacts: RunArtifacts, path: str, rows: ErasedRows, dry: bool) -> None:
    before = artifacts.read(path)
    try:
        after = redact(path, before, rows)
    except (LockstepError, ValueError) as error:  # of an older format, or edited
        outcome.unchanged.append(f"{user.run_id}/{path}: {error}")
        return
    if after != before:
        _change(outcome, outcome.rewritten, f"{user.run_id}/{path}", partial(artifacts.write, path, after), dry)


def _change(outcome: TrackedErasure, changed: list[str], name: str, change: Callable[[], None], dry: bool) -> None:
    try:
        if not dry:
            change()
        changed.append(name)
    except (LockstepError, NotImplementedError) as error:
        outcome.unchanged.append(f"{name}: {error or 'its store cannot remove files'}")


def _tables_with_rows(user: DatasetUser, artifacts: RunArtifacts, paths: Sequence[str], rows: ErasedRows, split: str) -> list[str]:
    """The tables of single rows in the evaluation of a split, and its figures, if one has an erased row, or if that cannot be known."""
    tables = {path: _read_table(artifacts.read(path)) for path in paths if path.endswith(".parquet")}
    of_rows = [path for path, table in tables.items() if table is None or ROW in table.column_names]
    of_rows += [path for path in paths if path.rpartition("/")[2] in (f"{WORST_ROWS}.parquet", f"{CONTRIBUTIONS}.parquet")]
    positions = {*rows.positions.get(split, ())} if user.digest == rows.digest_before else None
    numbers = {number for table in tables.values() if table is not None and ROW in table.column_names for number in table[ROW].to_pylist()}
    is_without = positions is not None and None not in tables.values() and not numbers & positions
    return [] if is_without else [*of_rows, *(path for path in paths if path.endswith(".svg"))]


def _read_table(content: bytes) -> pa.Table | None:
    try:
        return pq.read_table(io.BytesIO(content))
    except (OSError, pa.ArrowException):
        return None


def redact(path: str, content: bytes, rows: ErasedRows) -> bytes:
    """A manifest or a profile, as runs keep it, without values that may be those of the erased rows alone."""
    train_rows = rows.rows.get(SPLITS[0], 0)
    if path == _PROFILE:
        profile = json.loads(content)
        redacted = redact_profile(rows.manifest, profile, train_rows)
        return content if redacted == profile else json.dumps(redacted, indent=2).encode()
    manifest = parse_manifest(content, path)
    redacted = redact_profile(manifest, manifest.profile, train_rows)
    return content if redacted == manifest.profile else manifest.model_copy(update={"profile": redacted}).to_json()


def _remove_archive(outcome: TrackedErasure, folder: str, split: str, dry: bool) -> None:
    """Remove the archive of an evaluation from the directory of a run, where MLflow has got it from."""
    path = f"{folder}/{archive_name(split)}"
    try:
        filesystem, located = storage.locate(path)
        if filesystem.get_file_info(located).is_file:
            if not dry:
                filesystem.delete_file(located)
            outcome.removed.append(path)
    except (DatasetError, OSError) as error:
        outcome.unchanged.append(f"{path}: {error}")


def _describe_models(config: Config, user: DatasetUser, command: str, is_in_key: Callable[[str], bool]) -> dict[str, Any]:
    endpoint = config.endpoint.model or f"models:/{config.registry.model or config.name}@champion"
    versions = [{"name": version.name, "version": version.version, "aliases": list(version.aliases)} for version in user.versions]
    served = {
        uri
        for version in user.versions
        for uri in (f"models:/{version.name}/{version.version}", *(f"models:/{version.name}@{alias}" for alias in version.aliases))
    }
    served |= {f"models:/{model}" for model in user.models}
    examples = [model for model in user.models if is_in_key(read_example(config.tracking.uri, model))]
    return {
        "run": user.run_id,
        "name": user.name,
        "kind": user.kind,
        "digest": user.digest,
        "models": list(user.models),
        "versions": versions,
        "endpoint": endpoint if endpoint in served else "",
        "run_directory": user.folder,
        "examples_with_key": examples,
        "train_again": command,
    }
