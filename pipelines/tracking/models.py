"""Finds models in MLflow."""

from mlflow.entities import LoggedModelStatus

from pipelines.config import Config
from pipelines.errors import TrackingError
from pipelines.tracking.client import connect, reaching


def newest_model(config: Config) -> str:
    """URI of the newest model in the experiment of the config, `models:/…`. Raises TrackingError if there is none."""
    uri = config.tracking.uri
    client = connect(uri)
    newest_first = [{"field_name": "creation_timestamp", "ascending": False}]
    with reaching(uri):
        experiment = client.get_experiment_by_name(config.experiment)
        found = client.search_logged_models([experiment.experiment_id], order_by=newest_first) if experiment else []
    for model in found:
        if model.status == LoggedModelStatus.READY:
            return str(model.model_uri)
    raise TrackingError(f"experiment {config.experiment} at {uri} has no model; train one first")
