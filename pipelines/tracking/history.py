"""Reads from MLflow what a run has left: its tags, curves and files. Runs that have failed or still run are read alike."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts
from mlflow.entities import Run
from mlflow.exceptions import MlflowException

from pipelines.errors import TrackingError
from pipelines.tracking.client import connect, reaching
from pipelines.tracking.liveness import is_alive
from pipelines.tracking.run import KIND
from pipelines.tracking.training import IDENTITY

TRAINING = "training"
_ABSENT = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")


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
    """The settings by dotted name, shortened if they are long."""
    curves: Mapping[str, tuple[Point, ...]]
    """Points by metric, in the order of steps."""


def kind_of_run(uri: str, run_id: str) -> str:
    """`training`, or the kind that its tag names, such as `etl`; empty for a run that is none of ours. Raises as `history` does."""
    tags = _run(connect(uri), uri, run_id).data.tags
    return str(tags.get(KIND, TRAINING if IDENTITY in tags else ""))


def _run(client: MlflowClient, uri: str, run_id: str) -> Run:
    try:
        return client.get_run(run_id)
    except MlflowException as error:
        if error.error_code in _ABSENT:
            raise TrackingError(f"{uri} has no run {run_id}; use the ID of a run, which MLflow and jobs/train.py show") from error
        with reaching(uri):
            raise


def history(uri: str, run_id: str) -> History:
    """Everything but the files of a run. Raises TrackingError if there is no such run, or if MLflow cannot be reached."""
    client = connect(uri)
    run = _run(client, uri, run_id)
    with reaching(uri):
        experiment = client.get_experiment(run.info.experiment_id).name
        curves = {name: _points(client, run_id, name) for name in sorted(run.data.metrics)}
    info = run.info
    return History(
        run_id=run_id,
        name=info.run_name or run_id,
        experiment=experiment,
        status=info.status,
        is_alive=info.status == "RUNNING" and is_alive(run.data.tags),
        started=info.start_time / 1_000,
        ended=info.end_time / 1_000 if info.end_time else None,
        tags=dict(run.data.tags),
        params=dict(run.data.params),
        curves=curves,
    )


def _points(client: MlflowClient, run_id: str, name: str) -> tuple[Point, ...]:
    found = client.get_metric_history(run_id, name)
    return tuple(sorted((Point(one.step, one.timestamp / 1_000, one.value) for one in found), key=lambda one: (one.step, one.seconds)))


def download(uri: str, run_id: str, folder: Path, names: tuple[str, ...]) -> None:
    """Copy those of the files and folders of a run that it has."""
    client = connect(uri)
    with reaching(uri):
        present = {entry.path for entry in client.list_artifacts(run_id)}
        for name in names:
            if name in present:
                download_artifacts(run_id=run_id, artifact_path=name, dst_path=str(folder), tracking_uri=uri)


def newest_run(uri: str, experiment: str) -> str:
    """ID of the training of an experiment that began last. Raises TrackingError if there is none."""
    client = connect(uri)
    with reaching(uri):
        found = client.get_experiment_by_name(experiment)
        runs = found and client.search_runs(
            [found.experiment_id], "tags.`lockstep.identity` LIKE '%'", order_by=["attributes.start_time DESC"], max_results=1
        )
    if not runs:
        raise TrackingError(f"experiment {experiment} at {uri} has no training; run jobs/train.py first")
    return str(runs[0].info.run_id)
