"""Runs of jobs that train no network: that of an ETL, with rows read, written and refused, seconds by stage, and the profile of the data;
and that of a baseline."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from mlflow import MlflowClient

from pipelines.config import Config
from pipelines.data.versions.data_profile import Files, SparkStage
from pipelines.data.versions.manifest import Manifest
from pipelines.data.versions.versions import Version
from pipelines.tracking.client import connect, ensure_experiment, mlflow_errors
from pipelines.tracking.descriptions import GIT_COMMIT, git_commit
from pipelines.tracking.params_and_tags import etl_settings, key, log_params, origin_tags
from pipelines.tracking.run_heartbeat import correct_dead_runs
from pipelines.tracking.tracked_run import MlflowRun, create_run, tracked_run
from pipelines.tracking.training import log_dataset

BASELINE = "baseline"
"""The kind of these runs, in their tag KIND."""
_REASON_LENGTH = 200
"""Names of MLflow metrics have at most 250 characters."""


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
        self.tag({"dataset.digest": manifest.digest, "dataset.version": manifest.version})
        self.log_metrics({key(name): value for name, value in values.items()})
        with mlflow_errors(self.uri):
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

    def begin() -> EtlRun:
        client, run_id = _begin_job(config, {**config.tracking.tags, **tags, GIT_COMMIT: git_commit()}, "etl")
        with mlflow_errors(config.tracking.uri):
            log_params(client, run_id, etl_settings(config))
        return EtlRun(client, config.tracking.uri, run_id)

    return tracked_run(begin)


def _begin_job(config: Config, tags: Mapping[str, str], kind: str) -> tuple[MlflowClient, str]:
    """Create a run of this kind in the config's experiment; the second value is its id."""
    client = connect(config.tracking.uri)
    experiment = ensure_experiment(client, config)
    with mlflow_errors(config.tracking.uri):
        correct_dead_runs(client, experiment, config.dataset.path)
        return client, create_run(client, config, experiment, tags, kind)


@dataclass(frozen=True)
class BaselineRun(MlflowRun):
    def finish(self, parameters: Mapping[str, str], metrics: Mapping[str, float]) -> None:
        with mlflow_errors(self.uri):
            for name, value in parameters.items():
                self.client.log_param(self.run_id, name, value)
        self.log_metrics(metrics)


def baseline_run(config: Config, version: Version) -> AbstractContextManager[BaselineRun]:
    """An MLflow run that ends as FINISHED, as FAILED on an exception, or as KILLED on an interrupt. It is in the experiment of the
    trainings, on the same dataset, with the same names of metrics."""

    def begin() -> BaselineRun:
        client, run_id = _begin_job(config, origin_tags(config, version), BASELINE)
        with mlflow_errors(config.tracking.uri):
            log_dataset(client, run_id, config, version)
        return BaselineRun(client, config.tracking.uri, run_id)

    return tracked_run(begin)
