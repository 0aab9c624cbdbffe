"""Numbers of the last ETL of each pipeline for Prometheus, as a text file that an exporter serves.

The folder is LOCKSTEP_METRICS, as node_exporter's `--collector.textfile.directory` names it; without it, nothing is written. An ETL ends
before anything could ask it, so it leaves its numbers in a file. The format is Prometheus's text exposition format.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from pipelines.data.versions.data_profile import Survey
from pipelines.runtime import atomic

FOLDER = "LOCKSTEP_METRICS"
_Sample = tuple[str, dict[str, str], float]


def write_metrics(survey: Survey) -> None:
    """Replace the pipeline's file in the folder that LOCKSTEP_METRICS names. Raises OSError."""
    named = os.environ.get(FOLDER)
    if not named:
        return
    folder = Path(named)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"lockstep-etl-{re.sub(r'[^A-Za-z0-9_.-]', '_', survey.manifest.name)}.prom"
    atomic.replace(file, metrics_text(survey).encode(), mode=0o644)  # node_exporter runs as another user


def metrics_text(survey: Survey) -> str:
    lines: list[str] = []
    for name, labels, value in _samples(survey):
        if not any(line.startswith(f"# TYPE {name} ") for line in lines):
            lines += [f"# HELP {name} {_HELP[name]}", f"# TYPE {name} gauge"]
        shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in {"pipeline": survey.manifest.name, **labels}.items())
        lines.append(f"{name}{{{shown}}} {value:.17g}")
    return "\n".join(lines) + "\n"


_HELP = {
    "lockstep_etl_finished_timestamp_seconds": "When the last version was made",
    "lockstep_etl_rows": "Rows by split",
    "lockstep_etl_rows_parsed": "Records of all tables",
    "lockstep_etl_rows_quarantined": "Refused records and rows",
    "lockstep_etl_stage_seconds": "Seconds by stage of the ETL",
    "lockstep_etl_spilled_bytes": "Bytes that Spark spilled to disk, by stage of the ETL",
    "lockstep_etl_skew": "Longest task over the median, by stage of the ETL: the worst of its stages in Spark",
}


def _samples(survey: Survey) -> Iterator[_Sample]:
    manifest = survey.manifest
    yield "lockstep_etl_finished_timestamp_seconds", {}, manifest.created.timestamp()
    for split, summary in manifest.splits.items():
        yield "lockstep_etl_rows", {"split": split}, summary.rows
    yield "lockstep_etl_rows_parsed", {}, manifest.rows_parsed
    yield "lockstep_etl_rows_quarantined", {}, sum(manifest.quarantined.values())
    for stage, seconds in survey.seconds.items():
        yield "lockstep_etl_stage_seconds", {"stage": stage}, seconds
    stages = sorted({stage.stage for stage in survey.spark})
    for stage in stages:
        yield "lockstep_etl_spilled_bytes", {"stage": stage}, sum(found.spilled_bytes for found in survey.spark if found.stage == stage)
    for stage in stages:
        yield "lockstep_etl_skew", {"stage": stage}, max(found.skew for found in survey.spark if found.stage == stage)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
