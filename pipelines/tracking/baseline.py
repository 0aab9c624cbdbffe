"""The run of a baseline: in the experiment of the trainings, on the same dataset, with the same names of metrics."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from mlflow.entities import Metric
from mlflow.tracking.context.registry import resolve_tags

from pipelines.config import Config
from pipelines.data.versions.versions import Version
from pipelines.tracking.client import connect, ensure_experiment, mlflow_errors
from pipelines.tracking.liveness import DATASET, HEARTBEAT, correct_dead_runs, heartbeat
from pipelines.tracking.naming import run_name
from pipelines.tracking.run import KIND, MlflowRun, tracked_run
from pipelines.tracking.training import dataset_input, origin_tags

BASELINE = "baseline"
"""The kind of these runs, in their tag KIND."""


@dataclass(frozen=True)
class BaselineRun(MlflowRun):
    def finish(self, parameters: Mapping[str, str], metrics: Mapping[str, float]) -> None:
        now = int(time.time() * 1_000)
        with mlflow_errors(self.uri):
            for name, value in parameters.items():
                self.client.log_param(self.run_id, name, value)
            self.client.log_batch(self.run_id, [Metric(name, value, now, 0) for name, value in metrics.items()], synchronous=True)


@contextmanager
def baseline_run(config: Config, version: Version) -> Iterator[BaselineRun]:
    """An MLflow run that ends as FINISHED, as FAILED on an exception, or as KILLED on an interrupt."""
    with tracked_run(lambda: _begin(config, version)) as run:
        yield run


def _begin(config: Config, version: Version) -> BaselineRun:
    uri = config.tracking.uri
    client = connect(uri)
    experiment = ensure_experiment(client, config)
    with mlflow_errors(uri):
        correct_dead_runs(client, experiment, config.dataset.path)
        tags = {**resolve_tags(), **origin_tags(config, version), KIND: BASELINE, HEARTBEAT: heartbeat(), DATASET: config.dataset.path}
        run_id = client.create_run(experiment, tags=tags, run_name=run_name(config, "baseline")).info.run_id
        client.log_inputs(run_id, [dataset_input(config, version)])
        client.log_text(run_id, config.model_dump_json(indent=1), "config.json")
        client.log_text(run_id, version.manifest.to_json().decode(), "manifest.json")
    return BaselineRun(client, uri, run_id)
