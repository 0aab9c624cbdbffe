"""Finds the runs of a dataset by its digests, with their models, versions in the registry and aliases; reads, replaces and removes
artifacts of runs, also of deleted ones, which MLflow keeps."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from pipelines.tracking.client import all_experiments, all_runs, connect, mlflow_errors
from pipelines.tracking.history import TRAINING
from pipelines.tracking.run_heartbeat import is_alive
from pipelines.tracking.tracked_run import KIND
from pipelines.tracking.training import FOLDER


@dataclass(frozen=True)
class RegisteredVersion:
    """A version of a model in MLflow's registry."""

    name: str
    version: str
    aliases: tuple[str, ...]


@dataclass(frozen=True)
class DatasetUser:
    """A run whose rows are those of a digest: of an ETL, a training or a baseline."""

    run_id: str
    name: str
    kind: str
    """`etl`, `training`, or another kind."""
    digest: str
    is_alive: bool
    folder: str
    """The directory of a training, with its checkpoints; empty for other kinds."""
    artifact_uri: str
    models: tuple[str, ...] = ()
    """IDs of the models that it logged."""
    versions: tuple[RegisteredVersion, ...] = ()


def dataset_users(uri: str, digests: Iterable[str]) -> list[DatasetUser]:
    """All runs in any experiment with one of the digests, deleted ones too. Raises TrackingError if MLflow cannot be used."""
    client = connect(uri)
    users = list[DatasetUser]()
    with mlflow_errors(uri):
        experiments = [experiment.experiment_id for experiment in all_experiments(client)]
        for digest in sorted(digests):
            users += [_user(client, run, digest) for run in all_runs(client, experiments, f"tags.`dataset.digest` = '{digest}'")]
    return users


def _user(client: MlflowClient, run: Run, digest: str) -> DatasetUser:
    run_id, tags = run.info.run_id, run.data.tags
    models = client.search_logged_models([run.info.experiment_id], filter_string=f"source_run_id = '{run_id}'")
    return DatasetUser(
        run_id=run_id,
        name=run.info.run_name or run_id,
        kind=tags.get(KIND) or TRAINING,
        digest=digest,
        is_alive=run.info.status == "RUNNING" and is_alive(tags),
        folder=tags.get(FOLDER, ""),
        artifact_uri=run.info.artifact_uri,
        models=tuple(model.model_id for model in models),
        versions=tuple(_versions(client, run_id)),
    )


def _versions(client: MlflowClient, run_id: str) -> Iterator[RegisteredVersion]:
    for version in client.search_model_versions(f"run_id = '{run_id}'"):
        aliases: Mapping[str, object] = client.get_registered_model(version.name).aliases
        present = tuple(alias for alias, number in aliases.items() if str(number) == str(version.version))
        yield RegisteredVersion(version.name, str(version.version), present)


class RunArtifacts:
    """The artifacts of one run, by their paths. Every method raises TrackingError if the store fails."""

    def __init__(self, uri: str, user: DatasetUser) -> None:
        self._uri = uri
        with mlflow_errors(uri):
            self._repository = get_artifact_repository(user.artifact_uri, tracking_uri=uri)

    def paths(self) -> list[str]:
        """The paths of all files."""
        with mlflow_errors(self._uri):
            return sorted(self._files(None))

    def _files(self, folder: str | None) -> Iterator[str]:
        for entry in self._repository.list_artifacts(folder):
            if entry.is_dir:
                yield from self._files(entry.path)
            else:
                yield entry.path

    def read(self, path: str) -> bytes:
        with mlflow_errors(self._uri), TemporaryDirectory() as folder:
            return Path(self._repository.download_artifacts(path, dst_path=folder)).read_bytes()

    def write(self, path: str, content: bytes) -> None:
        """Write a file, in place of an older one."""
        above, _, name = path.rpartition("/")
        with mlflow_errors(self._uri), TemporaryDirectory() as folder:
            file = Path(folder) / name
            file.write_bytes(content)
            self._repository.log_artifact(str(file), above or None)

    def remove(self, path: str) -> None:
        with mlflow_errors(self._uri):
            self._repository.delete_artifacts(path)


def read_example(uri: str, model_id: str) -> str:
    """The example of a model's input as text; empty if it has none."""
    client = connect(uri)
    try:
        location = client.get_logged_model(model_id).artifact_location
        repository = get_artifact_repository(location, tracking_uri=uri)
        with TemporaryDirectory() as folder:
            return Path(repository.download_artifacts("input_example.json", dst_path=folder)).read_text(encoding="utf-8")
    except (MlflowException, OSError):
        return ""
