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
from pipelines.tracking.client import connect, ensure_experiment, mlflow_errors
from pipelines.tracking.params_and_tags import log_params, origin_tags, training_settings
from pipelines.tracking.run_heartbeat import HEARTBEAT, check_is_dead, correct_dead_runs, heartbeat
from pipelines.tracking.tracked_run import MlflowRun, create_run
from pipelines.tracking.training import log_dataset, record_resume

CROSS_VALIDATION = "cross-validation"
"""The kind of these runs, in their tag KIND."""
PARENT, FOLD = "mlflow.parentRunId", "fold"
"""Tags of a fold's training: MLflow's own for the run that it is in, and the number of the fold."""
_IDENTITY = "mlflow.lockstep.cross_validation"
_FILE = "metrics.json"
_MOST_RUNS = 10_000
"""Of the folds of a cross-validation, those that were interrupted included."""


@dataclass(frozen=True)
class CrossValidationRun(MlflowRun):
    experiment_id: str
    is_resumed: bool
    """Whether an earlier command began the run."""

    def read_finished_runs(self) -> dict[int, str]:
        """IDs of the finished trainings, by the number of the fold."""
        condition = f"tags.`{PARENT}` = '{self.run_id}' AND attributes.status = 'FINISHED'"
        with mlflow_errors(self.uri):
            runs = self.client.search_runs([self.experiment_id], condition, max_results=_MOST_RUNS)
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
        runs = client.search_runs([experiment], f"tags.`{PARENT}` = '{run_id}'", order_by=oldest_first, max_results=_MOST_RUNS)
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
    uri, identity = config.tracking.uri, f"{config.model_identity[:16]}-{version.digest[:16]}"
    client = connect(uri)
    experiment = ensure_experiment(client, config)
    with mlflow_errors(uri):
        newest = client.search_runs(
            [experiment], f"tags.`{_IDENTITY}` = '{identity}'", order_by=["attributes.start_time DESC"], max_results=1
        )
        correct_dead_runs(client, experiment, config.dataset.path)
        if newest and newest[0].info.status != "FINISHED":
            run_id = newest[0].info.run_id
            check_is_dead(newest[0], "the folds of this dataset")
            client.update_run(run_id, status="RUNNING")
            record_resume(client, config, newest[0], {**tags, HEARTBEAT: heartbeat()}, CROSS_VALIDATION)
            return CrossValidationRun(client, uri, run_id, experiment, is_resumed=True)
        run_tags = {**origin_tags(config, version), **tags, _IDENTITY: identity, "strategy": config.train.strategy.kind}
        run_id = create_run(client, config, experiment, run_tags, CROSS_VALIDATION)
        log_params(client, run_id, training_settings(config))
        log_dataset(client, run_id, config, version)
    return CrossValidationRun(client, uri, run_id, experiment, is_resumed=False)
