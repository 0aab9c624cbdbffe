"""Numbers of the last ETL of each pipeline for Prometheus, as a text file that an exporter serves.

The folder is LOCKSTEP_METRICS, as node_exporter's `--collector.textfile.directory` names it; without it, nothing is written. An ETL ends
before anything could ask it, so it leaves its numbers in a file.
"""

import os
import re
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from pipelines.data.versions.data_profile import Survey
from pipelines.runtime import atomic

FOLDER = "LOCKSTEP_METRICS"


def write_metrics(survey: Survey) -> None:
    """Replace the pipeline's file in the folder that LOCKSTEP_METRICS names. Raises OSError."""
    folder_name = os.environ.get(FOLDER)
    if not folder_name:
        return
    folder = Path(folder_name)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"lockstep-etl-{re.sub(r'[^A-Za-z0-9_.-]', '_', survey.manifest.name)}.prom"
    atomic.write_file(file, metrics_text(survey), mode=0o644)  # node_exporter runs as another user


def metrics_text(survey: Survey) -> bytes:
    """Gauges of one ETL in Prometheus's text format."""
    registry, manifest = CollectorRegistry(), survey.manifest

    def gauge(name: str, text: str, label: str = "") -> Gauge:
        return Gauge(f"lockstep_etl_{name}", text, ["pipeline", label] if label else ["pipeline"], registry=registry)

    pipeline = manifest.name
    gauge("finished_timestamp_seconds", "When the last version was made").labels(pipeline).set(manifest.created.timestamp())
    rows = gauge("rows", "Rows by split", "split")
    for split, summary in manifest.splits.items():
        rows.labels(pipeline, split).set(summary.rows)
    gauge("rows_parsed", "Records of all tables").labels(pipeline).set(manifest.rows_parsed)
    gauge("rows_quarantined", "Refused records and rows").labels(pipeline).set(sum(manifest.quarantined.values()))
    stage_seconds = gauge("stage_seconds", "Seconds by stage of the ETL", "stage")
    for stage, seconds in survey.seconds.items():
        stage_seconds.labels(pipeline, stage).set(seconds)
    spilled = gauge("spilled_bytes", "Bytes that Spark spilled to disk, by stage of the ETL", "stage")
    skew = gauge("skew", "Longest task over the median, by stage of the ETL: the worst of its stages in Spark", "stage")
    for stage in sorted({spark.stage for spark in survey.spark}):
        spark_stages = [spark for spark in survey.spark if spark.stage == stage]
        spilled.labels(pipeline, stage).set(sum(spark.spilled_bytes for spark in spark_stages))
        skew.labels(pipeline, stage).set(max(spark.skew for spark in spark_stages))
    return generate_latest(registry)
