"""The candidate, a run that may be promoted: its model, its dataset version, and the gates of its lineage."""

from collections.abc import Mapping
from dataclasses import dataclass

from mlflow.entities import LoggedModel

from pipelines.config import Config
from pipelines.data.versions.versions import Version, open_version, versions
from pipelines.errors import ConfigError, TrackingError
from pipelines.serving.registry.gates import Gate, equal
from pipelines.tracking.client import connect, mlflow_errors
from pipelines.tracking.description import GIT_COMMIT
from pipelines.tracking.history import check_is_not_deleted, read_training
from pipelines.tracking.liveness import MODEL_DIGEST
from pipelines.tracking.models import find_model


@dataclass(frozen=True)
class Candidate:
    """A run with its model, its records in MLflow, and the dataset version that it was trained on."""

    run_id: str
    model: LoggedModel
    tags: Mapping[str, str]
    metrics: Mapping[str, float]
    version: Version

    @property
    def uri(self) -> str:
        return str(self.model.model_uri)


def read_candidate(config: Config, run_id: str) -> Candidate:
    """Read a run. Raises TrackingError if there is no such training, if it is deleted, not finished or has no model; ConfigError if it
    was trained on what another config makes; DatasetError if its dataset version is gone."""
    uri = config.tracking.uri
    record = read_training(uri, run_id)
    if record.status != "FINISHED":
        raise TrackingError(f"run {run_id} is {record.status}; only a finished training can be promoted")
    if (pipeline := record.config.get("name")) != config.name:
        raise ConfigError(f"--run {run_id} is of the pipeline {pipeline}, and the config is that of {config.name}; give its own config")
    if fold := record.config.get("train", {}).get("fold"):
        raise ConfigError(
            f"--run {run_id} is the model of fold {fold} of a cross-validation, which has not seen all rows; for the champion, train with "
            "a dataset.split of shares, and promote that run"
        )
    client = connect(uri)
    with mlflow_errors(uri):
        run = client.get_run(run_id)
        check_is_not_deleted(uri, run)
        model = find_model(client, run)
    return Candidate(run_id, model, run.data.tags, run.data.metrics, _version(config, run_id, run.data.tags.get("dataset.digest", "")))


def _version(config: Config, run_id: str, digest: str) -> Version:
    """The dataset version of the run. Another config's rows would be others than those that the run was tested on."""
    matching = [root for root, manifest in versions(config.dataset.path) if manifest.digest == digest]
    version = open_version(matching[0] if matching else config.dataset.path, config.data_identity)
    if not matching:
        raise ConfigError(
            f"--run {run_id} was trained on dataset {digest[:12] or 'of no digest'}, which {config.dataset.path} does not hold; "
            f"the config's is {version.digest[:12]}: give the config of the run, or train on this dataset"
        )
    if version.manifest.identity != config.data_identity:
        raise ConfigError(f"--run {run_id} was trained with other settings of source or dataset than the config's; give its own config")
    return version


def lineage_gates(candidate: Candidate, digest: str, dataset: str) -> list[Gate]:
    """The gates of the records that lead from the model back to the raw data. `digest` is of the weights in the model's files, and
    `dataset` is the digest that the model names."""
    sources = candidate.version.manifest.sources
    return [
        equal("the digest of the weights", digest, candidate.tags.get(MODEL_DIGEST, "nothing")),
        equal("the digest of the model's dataset", dataset, candidate.version.digest),
        Gate("the number of checksums of raw files", bool(sources), float(sum(table.files for table in sources.values())), "at least 1"),
    ]


def commit_gates(config: Config, candidate: Candidate) -> list[Gate]:
    """The gate of the code's commit, if the config has it."""
    name = candidate.tags.get(GIT_COMMIT, "")
    is_clean = bool(name) and not name.endswith("-dirty")
    return [Gate("the commit of the code", is_clean, name or None, "a commit without -dirty")] if config.registry.clean_git else []
