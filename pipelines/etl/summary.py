"""Sums up a version that ETL has made: counts, notes and warnings, in the log and in MLflow."""

import logging
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import version
from platform import python_version
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.config import Config
from pipelines.data.features import refusal_kind
from pipelines.data.features.statistics import Statistics
from pipelines.data.sources.tables import Tables
from pipelines.data.versions import storage
from pipelines.data.versions.commit import Attempt, Report
from pipelines.data.versions.manifest import Balance, FittedEncoder, Folds, Manifest, TableBalance, content_digest
from pipelines.data.versions.schema import schema_to_text
from pipelines.errors import DatasetError
from pipelines.etl.refusals import reason_lines, share_text
from pipelines.etl.statistics.gather import RowSummary

log = logging.getLogger(__name__)

MOST_FREQUENT = 10
"""Values of a column in its profile."""
_PACKAGES = ("pyspark", "pyarrow", "numpy", "duckdb", "sqlglot")
"""Those whose versions a manifest has."""


def describe_version(
    config: Config,
    attempt: Attempt,
    summary: RowSummary,
    encoders: dict[str, FittedEncoder],
    report: Report,
    balance: Balance,
    **fields: Any,
) -> Manifest:
    """The manifest without its run and its sources. `fields` are those that do not follow from the other arguments."""
    return Manifest(
        name=config.name,
        version=attempt.root.rpartition("/")[2],
        digest=content_digest(encoders, report.row_groups),
        attempt=attempt.name,
        identity=config.data_identity,
        raw_schema=schema_to_text(summary.schema),
        encoders=encoders,
        rows_parsed=balance.parsed,
        quarantined=dict(sorted(report.refused.items())),
        balance=balance,
        profile={column: column_profile(statistics) for column, statistics in summary.statistics.items()},
        versions={"python": python_version()} | {package: version(package) for package in _PACKAGES},
        **fields,
    )


def column_profile(statistics: Statistics) -> dict[str, Any]:
    profile: dict[str, Any] = {"rows": statistics.rows, "nulls": statistics.nulls}
    if statistics.mean is not None:
        profile |= {name: getattr(statistics, name) for name in ("mean", "deviation", "minimum", "maximum")}
    if statistics.infinite:
        profile["infinite"] = statistics.infinite
    if statistics.counts is not None:
        frequent = statistics.counts.slice(0, MOST_FREQUENT)
        profile |= {"distinct": statistics.distinct, "most_frequent": dict(zip(*frequent.to_pydict().values(), strict=True))}
    return profile


def row_counts(tables: Tables, malformed: Report, summary: RowSummary, written: Report) -> Balance:
    """The row counts of each stage, which the commit compares. `written` is without the `malformed` records."""
    refused = Counter[str]()
    for reason, rows in malformed.refused.items():
        refused[reason.partition(":")[0]] += rows
    by_table = {
        name: TableBalance(parsed=parsed, handed_on=tables.handed_on[name], refused=refused[name]) for name, parsed in tables.parsed.items()
    }
    return Balance(
        tables=by_table,
        query=summary.query_rows,
        taken=written.accepted,
        refused=written.refused.total(),
        superseded=written.superseded,
        made=written.expected_rows,
    )


def log_notes(notes: Iterable[str]) -> None:
    """Log what a person may want to change, each in a line."""
    for note in notes:
        log.warning("%s", note)


def version_summary(config: Config, manifest: Manifest) -> str:
    root = f"{config.dataset.path}/{manifest.version}"
    rows = ", ".join(f"{split} {summary.rows:,}" for split, summary in manifest.splits.items())
    lines = [f"{root}: {rows}; digest {manifest.digest[:12]}"]
    if manifest.folds:
        lines.append(describe_folds(manifest.folds))
    if manifest.shares.said:
        lines.append(manifest.shares.said)
    if manifest.quarantined:
        quarantine = f"{root}/quarantine-{manifest.attempt}"
        lines.append(f"{share_text(manifest.rows_parsed, manifest.quarantined)}, and are kept in {quarantine}:")
        lines += reason_lines(manifest.quarantined, _samples(quarantine, set(manifest.quarantined)))
    return "\n".join(lines)


def describe_folds(folds: Folds) -> str:
    sizes = [rows for counts in folds.rows.values() for rows in counts]
    repeats = len(folds.rows)
    times = f", {repeats} times" if repeats > 1 else ""
    return f"{len(sizes) // repeats} folds{times}, of {min(sizes):,} to {max(sizes):,} rows"


def _samples(quarantine: str, reasons: set[str]) -> dict[str, str]:
    """A record for each reason. A store that fails ends the search, since the version is complete without it."""
    samples: dict[str, str] = {}
    with suppress(DatasetError, OSError, pa.ArrowException):
        filesystem, folder = storage.locate(quarantine)
        for entry in storage.entries(filesystem, folder):
            if reasons <= samples.keys():
                break
            table = pq.read_table(entry.path, columns=["reason", "record"], filesystem=filesystem)
            for reason, record in zip(table["reason"].to_pylist(), table["record"].to_pylist(), strict=True):
                samples.setdefault(reason if reason in reasons else refusal_kind(reason), record or "")
    return samples
