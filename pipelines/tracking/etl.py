"""The run of an ETL: rows read, written and refused, seconds by stage, and the profile of the data."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from mlflow.entities import Metric
from mlflow.tracking.context.registry import resolve_tags

from pipelines.config import Config
from pipelines.data.versions.data_profile import Files, SparkStage
from pipelines.data.versions.manifest import Manifest
from pipelines.tracking.client import connect, ensure_experiment, etl_settings, key, log_params, mlflow_errors
from pipelines.tracking.git import GIT_COMMIT, git_commit
from pipelines.tracking.liveness import DATASET, HEARTBEAT, correct_dead_runs, heartbeat
from pipelines.tracking.naming import run_name
from pipelines.tracking.run import KIND, MlflowRun, tracked_run

SPARK_APPLICATION = "spark.application_id"
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


@contextmanager
def etl_run(config: Config, tags: Mapping[str, str]) -> Iterator[EtlRun]:
    """An MLflow run with these tags that ends as FINISHED, as FAILED on an exception, or as KILLED on an interrupt."""
    with tracked_run(lambda: _begin(config, tags)) as run:
        yield run


def _begin(config: Config, tags: Mapping[str, str]) -> EtlRun:
    uri = config.tracking.uri
    client = connect(uri)
    experiment = ensure_experiment(client, config)
    with mlflow_errors(uri):
        correct_dead_runs(client, experiment, config.dataset.path)
        etl_tags = {GIT_COMMIT: git_commit(), KIND: "etl", HEARTBEAT: heartbeat(), DATASET: config.dataset.path}
        run_tags = {**resolve_tags(), **config.tracking.tags, **tags, **etl_tags}
        run_id = client.create_run(experiment, tags=run_tags, run_name=run_name(config, "etl")).info.run_id
        client.log_text(run_id, config.model_dump_json(indent=1), "config.json")
        log_params(client, run_id, etl_settings(config))
    return EtlRun(client, uri, run_id)
