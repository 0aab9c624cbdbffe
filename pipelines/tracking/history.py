"""Reads a run's tags, curves and files from MLflow, also of a run that has failed or still runs; and a finished training."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts
from mlflow.entities import LifecycleStage, Run
from mlflow.exceptions import MlflowException

from pipelines.errors import TrackingError
from pipelines.tracking.client import connect, mlflow_errors
from pipelines.tracking.descriptions import HIDDEN, metric_name
from pipelines.tracking.params_and_tags import flatten
from pipelines.tracking.run_heartbeat import is_alive
from pipelines.tracking.sender import BEST_EPOCH
from pipelines.tracking.tracked_run import KIND
from pipelines.tracking.training import IDENTITY

CONFIG = "config.json"
TRAINING = "training"
_NEWEST_FIRST = ["attributes.start_time DESC"]
_ABSENT = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
"""What MLflow answers of a run that it does not have, and of an ID that is none."""


@dataclass(frozen=True)
class Point:
    step: int
    seconds: float
    """Since 1970."""
    value: float


@dataclass(frozen=True)
class History:
    run_id: str
    name: str
    experiment: str
    status: str
    """MLflow's; one that says RUNNING may be of a process that was killed: see `is_alive`."""
    is_alive: bool
    started: float
    """Seconds since 1970."""
    ended: float | None
    tags: Mapping[str, str]
    params: Mapping[str, str]
    """The settings by dotted name, those of its config.json and the params that MLflow shows."""
    curves: Mapping[str, tuple[Point, ...]]
    """Points by metric, in the order of steps; without the final ones, which repeat those of the best epoch."""


def kind_of_run(uri: str, run_id: str) -> str:
    """`training`, or the kind that its tag names, such as `etl`; empty for a run that is none of ours. Raises as `history` does."""
    tags = _run(connect(uri), uri, run_id).data.tags
    return str(tags.get(KIND) or (TRAINING if tags.get(IDENTITY) else ""))


def _run(client: MlflowClient, uri: str, run_id: str) -> Run:
    try:
        return client.get_run(run_id)
    except MlflowException as error:
        if error.error_code in _ABSENT:
            raise TrackingError(f"{uri} has no run {run_id}; use the ID of a run, which MLflow and jobs/train.py show") from error
        with mlflow_errors(uri):
            raise


def run_tags(uri: str, run_id: str) -> dict[str, str]:
    """The tags of a run. Raises as `history` does."""
    return dict(_run(connect(uri), uri, run_id).data.tags)


def history(uri: str, run_id: str) -> History:
    """Read everything but the files of a run. Raises TrackingError if there is no such run, or if MLflow cannot be reached."""
    client = connect(uri)
    run = _run(client, uri, run_id)
    with mlflow_errors(uri):
        experiment = client.get_experiment(run.info.experiment_id).name
        curves: dict[str, list[Point]] = {}
        for name in sorted(run.data.metrics):
            points = [Point(metric.step, metric.timestamp / 1_000, metric.value) for metric in client.get_metric_history(run_id, name)]
            curves[metric_name(name)] = sorted(points, key=lambda point: (point.step, point.seconds))
        last_step = max((point.step for point in curves.pop(BEST_EPOCH, ())), default=2**63) - 1
        settings = {name: str(value) for name, value in _config(client, run_id).items()}
    return History(
        run_id=run_id,
        name=run.info.run_name or run_id,
        experiment=experiment,
        status=run.info.status,
        is_alive=run.info.status == "RUNNING" and is_alive(run.data.tags),
        started=run.info.start_time / 1_000,
        ended=run.info.end_time / 1_000 if run.info.end_time else None,
        tags=dict(run.data.tags),
        params={**run.data.params, **settings},
        curves={name: tuple(point for point in points if point.step <= last_step) for name, points in curves.items()},
    )


def _config(client: MlflowClient, run_id: str) -> dict[str, Any]:
    """The settings in the config of a run, by dotted name; empty for a run without one, such as a baseline's."""
    if not any(entry.path == CONFIG for entry in client.list_artifacts(run_id)):
        return {}
    with TemporaryDirectory() as folder:
        path = Path(client.download_artifacts(run_id, CONFIG, folder))
        return flatten(json.loads(path.read_bytes()))


def download(uri: str, run_id: str, folder: Path, names: tuple[str, ...]) -> None:
    """Copy those of the named files and folders that the run has."""
    client = connect(uri)
    with mlflow_errors(uri):
        present = {entry.path for entry in client.list_artifacts(run_id)}
        for name in names:
            if name in present:
                download_artifacts(run_id=run_id, artifact_path=name, dst_path=str(folder), tracking_uri=uri)


def newest_run(uri: str, experiment: str) -> str:
    """Return the ID of the training of an experiment that began last. Raises TrackingError if there is none."""
    client = connect(uri)
    with mlflow_errors(uri):
        logged_experiment = client.get_experiment_by_name(experiment)
        ids = [logged_experiment.experiment_id] if logged_experiment else []
        trainings = [
            run
            for name in (IDENTITY, IDENTITY.removeprefix(HIDDEN))
            for run in (client.search_runs(ids, f"tags.`{name}` LIKE '%'", order_by=_NEWEST_FIRST, max_results=1) if ids else ())
        ]
    if not trainings:
        raise TrackingError(f"experiment {experiment} at {uri} has no training; run jobs/train.py first")
    return str(max(trainings, key=lambda run: run.info.start_time).info.run_id)


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
        if error.error_code not in _ABSENT:
            raise TrackingError(
                f"tracking.uri is {uri}, which does not respond: {str(error).splitlines()[0]}; start the server, or wait"
            ) from error
        raise TrackingError(f"{uri} has no run {run_id}; use the ID of a training, which MLflow and jobs/train.py show") from error
    if kind := run.data.tags.get(KIND):
        raise TrackingError(f"run {run_id} ({run.info.run_name}) is of kind {kind}, not a training; use the ID of a run of jobs/train.py")
    try:
        with TemporaryDirectory() as folder:
            content = Path(client.download_artifacts(run_id, CONFIG, folder)).read_bytes()
    except (MlflowException, OSError) as error:
        raise TrackingError(
            f"config.json of run {run_id} ({run.info.run_name}) cannot be read from {uri}: {str(error).splitlines()[0]}; "
            "use the ID of a run of jobs/train.py that has its artifacts"
        ) from error
    try:
        config = dict(json.loads(content))
    except (TypeError, ValueError, RecursionError) as error:
        raise TrackingError(f"config.json of run {run_id} is damaged: {error}; log it again, or train again") from error
    return TrainingRecord(run_id, run.info.status, run.data.tags, config)


def check_is_not_deleted(uri: str, run: Run) -> None:
    """Raise TrackingError if the run is deleted: MLflow shows it, but records nothing of it any more."""
    if run.info.lifecycle_stage == LifecycleStage.DELETED:
        raise TrackingError(
            f"run {run.info.run_id} is deleted in {uri}, where no decision about it can be recorded; restore it with "
            f"`MLFLOW_TRACKING_URI={uri} mlflow runs restore --run-id {run.info.run_id}`"
        )
