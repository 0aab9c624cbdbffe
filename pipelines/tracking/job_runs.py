"""Runs of jobs that train no network: that of an ETL, with rows read, written and refused, seconds by stage, and the profile of the data;
and that of a baseline."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from mlflow import MlflowClient
from mlflow.entities import Metric
from mlflow.tracking.context.registry import resolve_tags

from pipelines.config import Config
from pipelines.data.versions.data_profile import Files, SparkStage
from pipelines.data.versions.manifest import Manifest
from pipelines.data.versions.versions import Version
from pipelines.tracking.client import connect, ensure_experiment, etl_settings, key, log_params, mlflow_errors
from pipelines.tracking.descriptions import GIT_COMMIT, git_commit, run_name
from pipelines.tracking.run_heartbeat import DATASET, HEARTBEAT, correct_dead_runs, heartbeat
from pipelines.tracking.tracked_run import KIND, MlflowRun, tracked_run
from pipelines.tracking.training import dataset_input, origin_tags

_NAMES = {"etl": "ETL"}
"""How runs of a kind are named, where that is not its tag."""
# Names of MLflow metrics have at most 250 characters.
_REASON_LENGTH = 200


@dataclass(frozen=True)
class EtlRun(MlflowRun):
    def finish(self, manifest: Manifest, seconds_by_stage: Mapping[str, float], spark: Sequence[SparkStage] = ()) -> None:
        """Log the results. Training runs link to this run by the `run_id` in the manifest."""
        refused = sum(manifest.quarantined.values())
        by_reason = Counter[str]()
        for reason, rows in manifest.quarantined.items():
            by_reason[key(reason.replace("/", "_"))[:_REASON_LENGTH]] += rows
        values = {
            "rows/parsed": manifest.rows_parsed,
            "rows/quarantined": refused,
            **_balance(manifest),
            **{f"rows/{split}": summary.rows for split, summary in manifest.splits.items()},
            **{f"quarantined/{reason}": rows for reason, rows in by_reason.items()},
            **{f"seconds/{stage}": seconds for stage, seconds in seconds_by_stage.items()},
            **_spark_metrics(spark),
        }
        now = int(time.time() * 1_000)
        self.tag({"dataset.digest": manifest.digest, "dataset.version": manifest.version})
        with mlflow_errors(self.uri):
            self.client.log_batch(
                self.run_id, [Metric(key(name), float(value), now, 0) for name, value in values.items()], synchronous=True
            )
            self.client.log_text(self.run_id, manifest.to_json().decode(), "manifest.json")
            self.client.log_dict(self.run_id, manifest.profile, "profile.json")

    def log_texts(self, files: Files) -> None:
        """Log texts as artifacts, by their names."""
        with mlflow_errors(self.uri):
            for name, content in files.items():
                self.client.log_text(self.run_id, content, name)


def _spark_metrics(stages: Sequence[SparkStage]) -> dict[str, float]:
    """Metrics of each stage of the ETL: seconds of all of Spark's tasks, bytes spilled to disk, and the worst skew."""
    totals: dict[str, float] = {}
    for stage in stages:
        for name, value in (("task_seconds", stage.task_seconds), ("spilled_bytes", stage.spilled_bytes)):
            totals[f"spark/{stage.stage}/{name}"] = totals.get(f"spark/{stage.stage}/{name}", 0.0) + value
        totals[f"spark/{stage.stage}/skew"] = max(totals.get(f"spark/{stage.stage}/skew", 1.0), stage.skew)
    return totals


def _balance(manifest: Manifest) -> dict[str, int]:
    """The row counts that ETL has checked against each other, such as `rows/query` and `rows/table name/parsed`."""
    if manifest.balance is None:
        return {}
    counts = manifest.balance.model_dump()
    by_table = {f"rows/table {name}/{stage}": rows for name, table in counts.pop("tables").items() for stage, rows in table.items()}
    return {f"rows/{stage}": rows for stage, rows in counts.items()} | by_table


def etl_run(config: Config, tags: Mapping[str, str]) -> AbstractContextManager[EtlRun]:
    """An MLflow run with these tags that ends as FINISHED, as FAILED on an exception, or as KILLED on an interrupt."""
    return tracked_run(lambda: _begin_etl(config, tags))


def _begin_etl(config: Config, tags: Mapping[str, str]) -> EtlRun:
    client, run_id = _create_run(config, "etl", {**config.tracking.tags, **tags, GIT_COMMIT: git_commit()})
    with mlflow_errors(config.tracking.uri):
        log_params(client, run_id, etl_settings(config))
    return EtlRun(client, config.tracking.uri, run_id)


def _create_run(config: Config, kind: str, tags: Mapping[str, str]) -> tuple[MlflowClient, str]:
    """Create a run of this kind, with the config; the second value is its id."""
    client = connect(config.tracking.uri)
    experiment = ensure_experiment(client, config)
    with mlflow_errors(config.tracking.uri):
        correct_dead_runs(client, experiment, config.dataset.path)
        run_tags = {**resolve_tags(), **tags, KIND: kind, HEARTBEAT: heartbeat(), DATASET: config.dataset.path}
        run_id = client.create_run(experiment, tags=run_tags, run_name=run_name(config, _NAMES.get(kind, kind))).info.run_id
        client.log_text(run_id, config.model_dump_json(indent=1), "config.json")
    return client, run_id


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


def baseline_run(config: Config, version: Version) -> AbstractContextManager[BaselineRun]:
    """An MLflow run that ends as FINISHED, as FAILED on an exception, or as KILLED on an interrupt. It is in the experiment of the
    trainings, on the same dataset, with the same names of metrics."""
    return tracked_run(lambda: _begin_baseline(config, version))


def _begin_baseline(config: Config, version: Version) -> BaselineRun:
    client, run_id = _create_run(config, BASELINE, origin_tags(config, version))
    with mlflow_errors(config.tracking.uri):
        client.log_inputs(run_id, [dataset_input(config, version)])
        client.log_text(run_id, version.manifest.to_json().decode(), "manifest.json")
    return BaselineRun(client, config.tracking.uri, run_id)
