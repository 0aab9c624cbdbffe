"""A finished training, or a dataset version, as the parts of a statement: from MLflow, the dataset's folder and the run's directory."""

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pipelines.config import Config, home
from pipelines.config.load import parse, with_absolute_paths
from pipelines.data.versions.folds import select_fold
from pipelines.data.versions.versions import Version, check_is_not_erased, find_by_digest, open_version
from pipelines.errors import CorruptError, DatasetError, MismatchError, TrainingError
from pipelines.lifecycle.statements.dataset_record import dataset_descriptor, order_record, source_descriptors
from pipelines.lifecycle.statements.digest_log import digest_log_descriptor
from pipelines.lifecycle.statements.materials import (
    ARCHIVE,
    CODE_FOLDER,
    Descriptor,
    code_descriptor,
    hash_code,
    model_descriptors,
    package_commit,
    package_descriptors,
)
from pipelines.lifecycle.statements.provenance import METRICS, WEIGHTS, Parts, identities
from pipelines.runtime.environment import installed_versions
from pipelines.serving.model.logged_model import file_digests, read_model
from pipelines.tracking import RESULT
from pipelines.tracking.descriptions import GIT_COMMIT
from pipelines.tracking.history import History, download, history, read_training
from pipelines.tracking.models import run_model_files
from pipelines.tracking.training import run_folder
from pipelines.train.checkpoint.checkpoint_record import read_digest_log
from pipelines.train.checkpoint.run_directory import RunDirectory

SEED = "train.seed"


@dataclass(frozen=True)
class Attested:
    """The parts of a statement, and what documents show besides."""

    parts: Parts
    version: Version
    model_folder: Path | None = None
    """The files of the model, while they are there."""


@contextmanager
def finished_training(config: Config, run_id: str) -> Iterator[Attested]:
    """The parts of a finished run, with the files of its model inside the block. `config` says where MLflow, dataset and storage are.

    Raises TrackingError for a run without its model or config, TrainingError for one that is not finished, DatasetError if its version
    is gone, CorruptError if a file of the model was altered, MismatchError if other packages are installed than those it was trained
    with."""
    uri = config.tracking.uri
    record = read_training(uri, run_id)
    run = history(uri, run_id)
    if record.status != "FINISHED" or run.ended is None:
        raise TrainingError(f"run {run_id} is {record.status}; a statement is about a FINISHED run: run its command again to resume it")
    recorded_config = parse(record.config, f"run {run_id}", recorded=True)
    digest = record.tags.get("dataset.digest", "")
    version = find_by_digest(config.dataset.path, digest)
    if version is None:
        check_is_not_erased(config.dataset.path, digest, run_id)
        raise DatasetError(
            f"run {run_id} was trained on dataset digest {digest[:12] or 'unknown'}, which {config.dataset.path} does not hold; "
            "set dataset.path to the folder of the run's dataset"
        )
    with run_model_files(uri, run_id) as (_, folder):
        yield Attested(_training_parts(config, recorded_config, run, version, folder), version, folder)


def _training_parts(config: Config, recorded_config: Config, run: History, version: Version, folder: Path) -> Parts:
    files, weights = hash_model_files(folder)
    check_packages(folder, run.run_id)
    code = {name: digest for name, digest in files.items() if name.startswith(CODE_FOLDER)}
    has_run_code = hash_code(recorded_config).get(ARCHIVE) == code.get(ARCHIVE)
    commit = package_commit() if has_run_code else run.tags.get(GIT_COMMIT, "")
    dependencies = [
        dataset_descriptor(version),
        *source_descriptors(version),
        *model_descriptors(recorded_config),
        code_descriptor(code, commit),
        *package_descriptors(recorded_config),
    ]
    is_secret = recorded_config.train.strategy.needs_secret_seed
    values = portable_config(recorded_config)
    byproducts = [_metrics_descriptor(config.tracking.uri, run.run_id)]
    if is_secret:
        del values["train"]["seed"]
    elif recorded_config.train.strategy.reproducible:
        placed = recorded_config.train.model_copy(update={"storage": config.train.storage})
        directory = run_folder(recorded_config.model_copy(update={"train": placed}), run.run_id, run.tags)
        byproducts.append(digest_log_descriptor(read_digest_log(RunDirectory(directory))))
    trained_version = version if recorded_config.train.fold is None else select_fold(version, recorded_config.train.fold)
    return Parts(
        kind="training",
        subjects={**files, WEIGHTS: weights},
        config=values,
        identities={} if is_secret else identities(recorded_config),
        order={} if is_secret else order_record(recorded_config, trained_version),
        dependencies=dependencies,
        run_id=run.run_id,
        started=rfc3339(run.started),
        finished=rfc3339(run.ended or run.started),
        byproducts=byproducts,
        withheld=[SEED] if is_secret else [],
    )


def read_version_parts(config: Config) -> Attested:
    """The parts of the dataset version that the config describes. Its code and packages are those of this process. Raises DatasetError if
    there is none."""
    version = open_version(config.dataset.path, config.data_identity)
    created = version.manifest.created.astimezone(UTC).isoformat().replace("+00:00", "Z")
    dependencies = [*source_descriptors(version), code_descriptor(hash_code(config), package_commit()), *package_descriptors(config)]
    parts = Parts(
        kind="etl",
        subjects={f"{version.manifest.name}/{version.manifest.version}": version.digest},
        config=portable_config(config),
        identities={"data": identities(config)["data"]},
        order={},
        dependencies=[dataset_descriptor(version), *dependencies],
        run_id=version.manifest.run_id,
        started=created,
        finished=created,
    )
    return Attested(parts, version)


def portable_config(config: Config) -> dict[str, Any]:
    """The config as plain values, in which each path below LOCKSTEP_HOME that commands resolve against it is relative to it."""
    values = config.model_dump(mode="json", by_alias=True)
    relative = _shorten(values, f"{home()}/")
    resolved = with_absolute_paths(parse(relative, config.name, recorded=True), home()).model_dump(mode="json", by_alias=True)
    return dict(_keep_if_resolved(values, relative, resolved))


def rfc3339(seconds: float) -> str:
    """A time in seconds since 1970, in UTC to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def hash_model_files(folder: Path) -> tuple[dict[str, str], str]:
    """SHA-256 of the model's files by path, and the digest of its weights. Raises CorruptError unless they are those that were logged."""
    _, weights = read_model(folder)
    files = file_digests(folder)
    logged = json.loads((folder / "digests.json").read_bytes())["files"]
    if altered := [name for name, digest in logged.items() if files.get(name) != digest]:
        raise CorruptError(f"{altered[0]} of the model is not the file that was logged; log the model again with jobs/train.py")
    return files, weights


def check_packages(folder: Path, run_id: str) -> None:
    """Raise MismatchError if a package has another version than the run's model requires: a statement lists what is installed here."""
    lines = (folder / "requirements.txt").read_text(encoding="utf-8").splitlines() if (folder / "requirements.txt").is_file() else []
    required = dict(line.split("==", 1) for line in lines if "==" in line)
    installed = {name: version.partition("+")[0] for name, version in installed_versions(list(required)).items()}
    for name, required_version in required.items():
        if installed[name] != required_version:
            raise MismatchError(
                f"run {run_id} was trained with {name} {required_version}, and {installed[name]} is installed here; "
                "make the statement in the environment that trained"
            )


def _metrics_descriptor(uri: str, run_id: str) -> Descriptor:
    """The metrics of the best epoch, as the run has filed them."""
    metrics: Mapping[str, float] = {}
    with TemporaryDirectory() as folder:
        download(uri, run_id, Path(folder), (RESULT,))
        if (file := Path(folder, RESULT)).is_file():
            metrics = json.loads(file.read_bytes())["metrics"]
    content = json.dumps(metrics, sort_keys=True).encode()
    return {"name": METRICS, "mediaType": "application/json", "content": b64encode(content).decode()}


def _shorten(values: Any, folder: str) -> Any:
    """The values with paths below a folder relative to it."""
    match values:
        case dict():
            return {name: _shorten(value, folder) for name, value in values.items()}
        case list():
            return [_shorten(value, folder) for value in values]
        case str() if values.startswith(folder) and values != folder:
            return values.removeprefix(folder)
        case str() if values.startswith(f"sqlite:///{folder}"):
            return values.replace(f"sqlite:///{folder}", "sqlite:///", 1)
    return values


def _keep_if_resolved(values: Any, relative: Any, resolved: Any) -> Any:
    """The relative values where they resolve to the values, else the values: no other machine would resolve those."""
    if isinstance(values, dict) and isinstance(resolved, dict):
        return {name: _keep_if_resolved(value, relative[name], resolved.get(name)) for name, value in values.items()}
    if isinstance(values, list) and isinstance(resolved, list) and len(values) == len(resolved):
        return [_keep_if_resolved(*items) for items in zip(values, relative, resolved, strict=True)]
    return relative if resolved == values else values
