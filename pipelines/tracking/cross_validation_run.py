"""The run of a cross-validation, in which the trainings of its folds are runs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from mlflow import MlflowClient
from mlflow.entities import Run

from pipelines.config import Config
from pipelines.data.versions.versions import Version
from pipelines.tracking.client import connect, mlflow_errors
from pipelines.tracking.parent_run import MOST_RUNS, PARENT, ParentKind, ParentRun, open_parent_run
from pipelines.tracking.tracked_run import MlflowRun
from pipelines.tracking.training import training_identity

CROSS_VALIDATION = "cross-validation"
"""The kind of these runs, in their tag KIND."""
FOLD = "fold"
"""Tag of a fold's training: the number of the fold."""
_KIND = ParentKind(CROSS_VALIDATION, "mlflow.lockstep.cross_validation", "the folds of this dataset")
_FILE = "metrics.json"


@dataclass(frozen=True)
class CrossValidationRun(ParentRun):
    """The run of a cross-validation."""

    def read_finished_runs(self) -> dict[int, str]:
        """IDs of the finished trainings, by the number of the fold."""
        condition = f"tags.`{PARENT}` = '{self.run_id}' AND attributes.status = 'FINISHED'"
        with mlflow_errors(self.uri):
            runs = self.client.search_runs([self.experiment_id], condition, max_results=MOST_RUNS)
        return {int(run.data.tags[FOLD]): run.info.run_id for run in runs if run.data.tags.get(FOLD, "").isdecimal()}

    def final_metrics(self, run_id: str) -> dict[str, float]:
        """The metrics of the best epoch of a fold's training, as `file_metrics` has filed them."""
        with mlflow_errors(self.uri):
            return _read_metrics(self.client, run_id)


@dataclass(frozen=True)
class FoldTraining:
    """The training of a fold's model, as MLflow has it."""

    fold: int
    run_id: str
    status: str
    seconds: float | None
    """From start to end; None while it runs."""
    metrics: Mapping[str, float]
    """Of the best epoch; empty if the training is not finished."""


def read_fold_trainings(uri: str, run_id: str) -> list[FoldTraining]:
    """The trainings in the run of a cross-validation, one for each fold: the finished one, else the one that began last.

    Raises TrackingError if MLflow cannot be reached."""
    client = connect(uri)
    with mlflow_errors(uri):
        experiment = client.get_run(run_id).info.experiment_id
        oldest_first = ["attributes.start_time ASC"]
        runs = client.search_runs([experiment], f"tags.`{PARENT}` = '{run_id}'", order_by=oldest_first, max_results=MOST_RUNS)
        by_fold: dict[int, Run] = {}
        for run in runs:
            if not (number := run.data.tags.get(FOLD, "")).isdecimal():
                continue
            earlier = by_fold.get(int(number))
            if earlier is None or earlier.info.status != "FINISHED":
                by_fold[int(number)] = run
        trainings = []
        for fold, info in sorted((fold, run.info) for fold, run in by_fold.items()):
            seconds = (info.end_time - info.start_time) / 1_000 if info.end_time else None
            metrics = _read_metrics(client, info.run_id) if info.status == "FINISHED" else {}
            trainings.append(FoldTraining(fold, info.run_id, info.status, seconds, metrics))
        return trainings


def _read_metrics(client: MlflowClient, run_id: str) -> dict[str, float]:
    with TemporaryDirectory() as folder:
        return dict(json.loads(Path(client.download_artifacts(run_id, _FILE, folder)).read_bytes()))


def file_metrics(run: MlflowRun, metrics: Mapping[str, float]) -> None:
    """File the metrics of the best epoch of a fold's training: MLflow shows those of the last epoch as the latest of validation."""
    run.file(_FILE, json.dumps(metrics).encode())


def open_cross_validation(config: Config, version: Version, tags: Mapping[str, str]) -> CrossValidationRun:
    """Begin the run of this command, or resume one of the same settings and dataset that is not finished.

    Raises TrackingError if that is alive.
    """
    return open_parent_run(CrossValidationRun, _KIND, config, version, training_identity(config, version), tags)
