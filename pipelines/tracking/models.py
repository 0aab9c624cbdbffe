"""Finds models in MLflow."""

from mlflow import MlflowClient
from mlflow.entities import LoggedModel, LoggedModelStatus, Run

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
