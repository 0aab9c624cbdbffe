"""Reads a recorded training run from MLflow."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlflow.artifacts import download_artifacts
from mlflow.entities import LifecycleStage, Run
from mlflow.exceptions import MlflowException

from pipelines.errors import TrackingError
from pipelines.tracking.client import connect
from pipelines.tracking.naming import read_hidden_tag
from pipelines.tracking.run import KIND


@dataclass(frozen=True)
class TrainingRecord:
    run_id: str
    status: str
    tags: Mapping[str, str]
    """Not reliable: a run that was copied from another MLflow may lack tags, or have tags from another machine."""
    config: dict[str, Any]
    """The config as plain values."""


def read_training(uri: str, run_id: str) -> TrainingRecord:
    """Read a training run. Raises TrackingError if there is no such run, or if it is not a training."""
    client = connect(uri)
    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            raise TrackingError(
                f"tracking.uri is {uri}, which does not respond: {str(error).splitlines()[0]}; start the server, or wait"
            ) from error
        raise TrackingError(f"{uri} has no run {run_id}; use the ID of a training, which MLflow and jobs/train.py show") from error
    if kind := read_hidden_tag(run.data.tags, KIND):
        raise TrackingError(f"run {run_id} ({run.info.run_name}) is of kind {kind}, not a training; use the ID of a run of jobs/train.py")
    try:
        path = Path(download_artifacts(run_id=run_id, artifact_path="config.json", tracking_uri=uri))
    except (MlflowException, OSError) as error:
        raise TrackingError(
            f"config.json of run {run_id} ({run.info.run_name}) cannot be read from {uri}: {str(error).splitlines()[0]}; "
            "use the ID of a run of jobs/train.py that has its artifacts"
        ) from error
    return TrainingRecord(run_id, run.info.status, run.data.tags, _config(path, run_id))


def check_is_not_deleted(uri: str, run: Run) -> None:
    """Raise TrackingError if the run is deleted: MLflow shows it, but records nothing of it any more."""
    if run.info.lifecycle_stage == LifecycleStage.DELETED:
        raise TrackingError(
            f"run {run.info.run_id} is deleted in {uri}, where no decision about it can be recorded; restore it with "
            f"`MLFLOW_TRACKING_URI={uri} mlflow runs restore --run-id {run.info.run_id}`"
        )


def _config(file: Path, run_id: str) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_bytes()))
    except (TypeError, ValueError, RecursionError) as error:
        raise TrackingError(f"config.json of run {run_id} is damaged: {error}; log it again, or train again") from error
