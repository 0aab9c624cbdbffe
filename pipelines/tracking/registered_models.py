"""Finds and downloads models by the URIs of MLflow's model registry."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts
from mlflow.exceptions import MlflowException

from pipelines.errors import TrackingError
from pipelines.tracking.client import connect


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
    """Where MLflow keeps the files."""
    name = model.removeprefix("models:/")
    source = model
    if "@" in name or "/" in name:
        source = client.get_model_version_download_uri(name.partition("@")[0].partition("/")[0], version)
    return str(client.get_logged_model(source.removeprefix("models:/")).artifact_location) if source.startswith("models:/") else source


def _model_error(uri: str, model: str, error: Exception) -> TrackingError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return TrackingError(f"{model} cannot be read from {uri}: {reason}; register a model under this name, or start the server")
