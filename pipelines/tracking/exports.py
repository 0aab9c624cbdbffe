"""Downloads the model of a run, and logs its exports with the run."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from mlflow.artifacts import download_artifacts
from mlflow.exceptions import MlflowException

from pipelines.errors import TrackingError
from pipelines.tracking.client import connect, mlflow_errors
from pipelines.tracking.models import find_model


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
