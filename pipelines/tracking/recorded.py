"""What MLflow has of a training that is over."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlflow.artifacts import download_artifacts
from mlflow.exceptions import MlflowException

from pipelines.errors import TrackingError
from pipelines.tracking.client import connect
from pipelines.tracking.run import KIND


@dataclass(frozen=True)
class Recorded:
    run_id: str
    status: str
    tags: Mapping[str, str]
    """Hints: a run that was copied from another MLflow may lack them, or have them from another machine."""
    config: dict[str, Any]
    """As plain values."""


def recorded(uri: str, run_id: str) -> Recorded:
    """A training run. Raises TrackingError if there is no such run, or if it is of something else."""
    client = connect(uri)
    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            raise TrackingError(
                f"tracking.uri is {uri}, which does not answer: {str(error).splitlines()[0]}; start the server, or wait"
            ) from error
        raise TrackingError(f"{uri} has no run {run_id}; give the id of a training, as MLflow and jobs/train.py show it") from error
    if kind := run.data.tags.get(KIND):
        raise TrackingError(f"run {run_id} ({run.info.run_name}) is of kind {kind}, not a training; give the id of a run of jobs/train.py")
    try:
        path = Path(download_artifacts(run_id=run_id, artifact_path="config.json", tracking_uri=uri))
    except (MlflowException, OSError) as error:
        raise TrackingError(
            f"{uri} does not give config.json of run {run_id} ({run.info.run_name}): {str(error).splitlines()[0]}; "
            "give the id of a run of jobs/train.py whose artifacts are there"
        ) from error
    return Recorded(run_id, run.info.status, run.data.tags, _config(path, run_id))


def _config(file: Path, run_id: str) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_bytes()))
    except (TypeError, ValueError, RecursionError) as error:
        raise TrackingError(f"config.json of run {run_id} is not as it was logged: {error}; log it again, or train anew") from error
