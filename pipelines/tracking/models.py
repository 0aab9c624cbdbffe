"""Finds and downloads models of runs, and of MLflow's model registry; logs exports with the run."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts
from mlflow.entities import LoggedModel, LoggedModelStatus, Run
from mlflow.exceptions import MlflowException

from pipelines.config import Config
from pipelines.errors import TrackingError
from pipelines.tracking.client import connect, mlflow_errors


def newest_model(config: Config) -> str:
    """URI of the newest model in the experiment of the config, `models:/…`. Raises TrackingError if there is none."""
    uri = config.tracking.uri
    client = connect(uri)
    with mlflow_errors(uri):
        experiment = client.get_experiment_by_name(config.experiment)
        newest = _newest(client, experiment.experiment_id) if experiment else None
    if newest is None:
        raise TrackingError(f"experiment {config.experiment} at {uri} has no model; train one first")
    return str(newest.model_uri)


def find_model(client: MlflowClient, run: Run) -> LoggedModel:
    """Return the newest complete model of a training: a training that was interrupted while it logged a model has two.

    Raises TrackingError if there is none, and what MLflow raises.
    """
    newest = _newest(client, run.info.experiment_id, f"source_run_id = '{run.info.run_id}'")
    if newest is None:
        raise TrackingError(f"run {run.info.run_id} has no model; use the ID of a training that MLflow shows as FINISHED")
    return newest


def _newest(client: MlflowClient, experiment_id: str, condition: str | None = None) -> LoggedModel | None:
    """The newest model that was logged completely."""
    newest_first = [{"field_name": "creation_timestamp", "ascending": False}]
    models = client.search_logged_models([experiment_id], filter_string=condition, order_by=newest_first)
    return next((model for model in models if model.status == LoggedModelStatus.READY), None)


@contextmanager
def run_model_files(uri: str, run_id: str) -> Iterator[tuple[str, Path]]:
    """The URI of the model of a run, `models:/…`, and a folder with its files, which is removed afterwards.

    Raises TrackingError if there is no such run, or if it has no model.
    """
    client = connect(uri)
    with tempfile.TemporaryDirectory() as folder:
        try:
            model = find_model(client, client.get_run(run_id))
            path = download_artifacts(artifact_uri=model.artifact_location, dst_path=folder, tracking_uri=uri)
        except (MlflowException, OSError) as error:
            raise TrackingError(
                f"the model of run {run_id!r} cannot be read from {uri}: {str(error).splitlines()[0]}; "
                "use the ID of a finished training, which MLflow and jobs/train.py show"
            ) from error
        yield str(model.model_uri), Path(path)


def log_export(uri: str, run_id: str, folder: Path, target: str, tags: Mapping[str, str]) -> None:
    """Log the files of an export as artifacts `export/TARGET` of the run, and then its tags."""
    client = connect(uri)
    with mlflow_errors(uri):
        client.log_artifacts(run_id, str(folder), f"export/{target}")
        for name, value in tags.items():
            client.set_tag(run_id, name, value)


def resolve_version(uri: str, model: str) -> str:
    """The number of the version that `models:/NAME@ALIAS` or `models:/NAME/VERSION` names, or the ID of a logged model.

    Raises TrackingError if MLflow does not answer, or has no such model.
    """
    name = model.removeprefix("models:/")
    try:
        if "@" in name:
            model_name, _, alias = name.partition("@")
            return str(connect(uri).get_model_version_by_alias(model_name, alias).version)
        return name.rpartition("/")[2]
    except (MlflowException, OSError) as error:
        raise _model_error(uri, model, error) from error


@contextmanager
def registered_model_files(uri: str, model: str, version: str) -> Iterator[Path]:
    """A folder with the files of a version from `resolve_version`, which is removed afterwards. Raises TrackingError as that does."""
    client = connect(uri)
    with tempfile.TemporaryDirectory() as folder:
        try:
            path = download_artifacts(artifact_uri=_location(client, model, version), dst_path=folder, tracking_uri=uri)
        except (MlflowException, OSError) as error:
            raise _model_error(uri, model, error) from error
        yield Path(path)


def _location(client: MlflowClient, model: str, version: str) -> str:
    name = model.removeprefix("models:/")
    source = model
    if "@" in name or "/" in name:
        source = client.get_model_version_download_uri(name.partition("@")[0].partition("/")[0], version)
    return str(client.get_logged_model(source.removeprefix("models:/")).artifact_location) if source.startswith("models:/") else source


def _model_error(uri: str, model: str, error: Exception) -> TrackingError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return TrackingError(f"{model} cannot be read from {uri}: {reason}; register a model under this name, or start the server")
