"""Reads the runs of an ensemble's members from MLflow, in the driver: what they have recorded, and their weights."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from pipelines.applications.ensembles.network import EnsembleNetwork
from pipelines.applications.ensembles.settings import EnsembleSettings, Member
from pipelines.applications.ensembles.task import Ensemble
from pipelines.config import Config
from pipelines.config.messages.words import name_list
from pipelines.data.versions.manifest import Manifest, parse_manifest
from pipelines.data.versions.versions import Version
from pipelines.errors import ConfigError, LockstepError, TrackingError
from pipelines.serving.model.logged_model import read_model
from pipelines.tasks.bind import build_task, task_data
from pipelines.tasks.targets.decision import Decision
from pipelines.tracking.history import TrainingRecord, download, read_training
from pipelines.tracking.models import run_model_files
from pipelines.tracking.run_heartbeat import MODEL_DIGEST
from pipelines.train.initial_model import OriginReader, meta_model

_MANIFEST = "manifest.json"


class MemberReader(OriginReader):
    def fill_in(self, config: Config, version: Version) -> Config:
        settings = _settings(config)
        members = tuple(read_member(config, version, run) for run in settings.of)
        if settings.members and settings.members != members:
            raise ConfigError(
                f"task.members is not what the runs {name_list(settings.of)} have recorded in {config.tracking.uri}; remove it for another "
                "ensemble, or set tracking.uri to where they were trained"
            )
        filled_in = config.model_copy(update={"task": settings.model_copy(update={"members": members})})
        _ = _ensemble(filled_in, version).members  # which refuses those of other kinds
        return filled_in

    def weights(self, config: Config, version: Version) -> dict[str, Tensor]:
        task, uri = _ensemble(config, version), config.tracking.uri
        weights: dict[str, Tensor] = {}
        calibration = []
        for number, member in enumerate(task.settings.members):
            with run_model_files(uri, member.run) as (_, folder):
                parts, digest = read_model(folder)
            if digest != member.digest:
                raise ConfigError(
                    f"task.members has digest {member.digest[:12]} of run {member.run}, whose model has {digest[:12]}; train that model "
                    "again, and name the new run in task.of"
                )
            weights |= {f"members.{number}.{name}": tensor for name, tensor in parts.weights.items()}
            decision = Decision(**parts.decision)
            calibration.append([decision.scale, decision.shift])
        model = meta_model(task)
        assert isinstance(model, EnsembleNetwork), "the task makes it"
        calibrations = {} if model.calibration is None else {"calibration": torch.tensor(calibration)}
        return {**weights, **calibrations, "uses": torch.ones(len(calibration), dtype=torch.int64)}


def read_member(config: Config, version: Version, run: str) -> Member:
    """The record of a member's run. Raises ConfigError unless it is a finished training on this dataset version."""
    try:
        record = read_training(config.tracking.uri, run)
    except TrackingError as error:
        raise ConfigError(f"task.of: {error}") from error
    if record.status != "FINISHED":
        raise ConfigError(
            f"task.of has run {run}, which is {record.status}; wait until it is FINISHED, run its command again to resume it, or remove it "
            "from task.of"
        )
    digest = record.tags.get(MODEL_DIGEST, "")
    if not digest:
        raise ConfigError(f"task.of has run {run}, in which MLflow has no digest of a model any more; train that model again")
    _check_dataset(config, version, record)
    return Member(run=run, digest=digest, task=record.config["task"])


def _check_dataset(config: Config, version: Version, record: TrainingRecord) -> None:
    """Raise ConfigError unless a run was trained on the rows of this version, and says first how its target differs."""
    run, digest, fold = record.run_id, record.tags.get("dataset.digest", ""), record.config["train"].get("fold")
    place = f"task.of has run {run}, which"
    if digest != version.digest:
        target, classes = _target_and_classes(_read_manifest(config, run) or version.manifest)
        own_target, own_classes = _target_and_classes(version.manifest)
        if target != own_target:
            raise ConfigError(f"{place} predicts {target}, and the dataset's target is {own_target}; remove the run from task.of")
        if classes != own_classes:
            raise ConfigError(
                f"{place} knows the classes {name_list(classes)}, and the dataset has {name_list(own_classes)}; train that model on this "
                "dataset, or remove the run from task.of"
            )
        raise ConfigError(
            f"{place} was trained on dataset digest {digest[:12] or 'unknown'}, and this one has {version.digest[:12]}; set source and "
            "dataset to those of all members, or train that model on this dataset"
        )
    if fold != config.train.fold:
        raise ConfigError(
            f"{place} was trained on fold {fold}, and this is fold {config.train.fold}; set train.fold to that of all members"
        )


def _read_manifest(config: Config, run: str) -> Manifest | None:
    """The manifest that a run has logged; None if it cannot be read."""
    try:
        with TemporaryDirectory() as folder:
            download(config.tracking.uri, run, Path(folder), (_MANIFEST,))
            return parse_manifest(Path(folder, _MANIFEST).read_bytes(), _MANIFEST)
    except (LockstepError, OSError, json.JSONDecodeError):
        return None


def _target_and_classes(manifest: Manifest) -> tuple[str, tuple[str, ...]]:
    """The names of the target and of its classes; empty if there are none."""
    target = next((name for name, fitted in manifest.encoders.items() if fitted.column.role == "target"), "")
    return target, task_data(manifest.encoders).classes if target else ()


def _settings(config: Config) -> EnsembleSettings:
    assert isinstance(config.task, EnsembleSettings), "only these settings name this reader"
    return config.task


def _ensemble(config: Config, version: Version) -> Ensemble:
    task = build_task(config.task, version.manifest)
    assert isinstance(task, Ensemble), "the settings name it"
    return task
