"""Describes a written attempt in its manifest: what the encoders learned, the rows of each split, and the rows of each stage."""

from collections import Counter
from importlib.metadata import version
from platform import python_version

from pipelines.config import Config
from pipelines.data.sources.tables import Tables
from pipelines.data.versions.attempt import Attempt, Report
from pipelines.data.versions.balance import Balance, TableBalance
from pipelines.data.versions.manifest import FittedEncoder, Manifest, content_digest, split_summaries
from pipelines.data.versions.schema import schema_to_text
from pipelines.etl.fit import column_profile
from pipelines.etl.statistics.row_summary import RowSummary


def describe_version(
    config: Config,
    attempt: Attempt,
    summary: RowSummary,
    encoders: dict[str, FittedEncoder],
    report: Report,
    balance: Balance,
    warnings: tuple[str, ...],
) -> Manifest:
    """The manifest without its run, its sources and its notes."""
    return Manifest(
        name=config.name,
        version=attempt.root.rpartition("/")[2],
        digest=content_digest(encoders, report.row_groups),
        attempt=attempt.name,
        identity=config.data_identity,
        raw_schema=schema_to_text(summary.schema),
        encoders=encoders,
        splits=split_summaries(encoders, report.row_groups),
        rows_parsed=balance.parsed,
        quarantined=dict(sorted(report.refused.items())),
        balance=balance,
        profile={column: column_profile(statistics) for column, statistics in summary.statistics.items()},
        warnings=warnings,
        versions={"python": python_version()}
        | {package: version(package) for package in ("pyspark", "pyarrow", "numpy", "duckdb", "sqlglot")},
    )


def row_counts(tables: Tables, malformed: Report, summary: RowSummary, written: Report) -> Balance:
    """The row counts of each stage, which the commit compares. `written` is without the `malformed` records."""
    refused = Counter[str]()
    for reason, rows in malformed.refused.items():
        refused[reason.partition(":")[0]] += rows
    by_table = {
        name: TableBalance(parsed=parsed, handed_on=tables.handed_on[name], refused=refused[name]) for name, parsed in tables.parsed.items()
    }
    return Balance(
        tables=by_table, query=summary.query_rows, taken=written.accepted, refused=written.refused.total(), made=written.expected_rows
    )
