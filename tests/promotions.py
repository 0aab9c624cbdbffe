"""Finished runs with a model, as a training leaves them, without a training."""

import mlflow
import torch
from torch import Tensor
from trainings import open_dataset

from pipelines.api import open_loader
from pipelines.config import Config
from pipelines.data.loader import Order
from pipelines.runtime.weights import model_digest
from pipelines.serving.model import log_model
from pipelines.tasks.bind import build_task
from pipelines.tracking.client import ensure_experiment


def untrained_weights(config: Config, seed: int, times: float = 1.0) -> dict[str, Tensor]:
    """Weights of a model that was not trained, all of them multiplied."""
    torch.manual_seed(seed)
    task = build_task(config.task, open_dataset(config).manifest)
    return {name: value * times if value.is_floating_point() else value for name, value in task.model().state_dict().items()}


def finished_run(config: Config, weights: dict[str, Tensor], commit: str = "a" * 40, takes_query: bool = False) -> tuple[str, str]:
    """ID of the run, and URI of its model, which takes the query's columns if `takes_query`. Its test metrics are those of the model."""
    version = open_dataset(config)
    client = mlflow.MlflowClient(config.tracking.uri)
    tags = {"dataset.digest": version.digest, "model.digest": model_digest(weights), "git.commit": commit}
    run_id = client.create_run(ensure_experiment(client, config), tags=tags).info.run_id
    client.log_text(run_id, config.model_dump_json(), "config.json")
    for name, value in measure_test_split(config, weights).items():
        client.log_metric(run_id, f"test/{name}", value)
    manifest = version.manifest.model_copy(update={"served_query": None}) if takes_query else version.manifest
    uri = log_model(config, manifest, weights, run_id)
    client.set_terminated(run_id)
    return run_id, uri


def measure_test_split(config: Config, weights: dict[str, Tensor]) -> dict[str, float]:
    """Metrics of the rows that ETL encoded for the test split."""
    task = build_task(config.task, open_dataset(config).manifest)
    model, metrics = task.model().eval(), task.metrics()
    model.load_state_dict(weights)
    order = Order(1, 64, shuffle=False, remainder="keep")
    loader = open_loader(config, "test", order)
    with torch.inference_mode():
        for batch in loader:
            task.update(metrics, model(batch), batch)
    return {name: float(value) for name, value in metrics.compute().items()}
