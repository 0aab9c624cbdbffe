"""The manifest of an attempt, and the row counts that must agree."""

from collections import Counter
from importlib.metadata import version
from platform import python_version

import pyarrow as pa

from pipelines.config import Config
from pipelines.data.sources.tables import Tables
from pipelines.data.versions.attempt import Attempt, Report
from pipelines.data.versions.balance import Balance, TableBalance
from pipelines.data.versions.manifest import Manifest, content_digest, split_summaries
from pipelines.data.versions.schema import schema_to_text
from pipelines.etl.fit import FitResult, RowSummary


def row_counts(tables: Tables, malformed: Report, summary: RowSummary, written: Report) -> Balance:
    """The row counts of each stage, which the commit compares."""
    refused = Counter[str]()
    for reason, rows in malformed.refused.items():
        refused[reason.partition(":")[0]] += rows
    by_table = {
        name: TableBalance(parsed=parsed, handed_on=tables.handed_on[name], refused=refused[name]) for name, parsed in tables.parsed.items()
    }
    return Balance(
        tables=by_table, query=summary.query_rows, taken=written.accepted, refused=written.refused.total(), made=written.expected_rows
    )


def describe_version(
    config: Config,
    attempt: Attempt,
    schema: pa.Schema,
    fitted: FitResult,
    report: Report,
    balance: Balance,
    warnings: tuple[str, ...],
) -> Manifest:
    """The manifest without its run and its sources. `schema` is that of the query's output."""
    return Manifest(
        name=config.name,
        version=attempt.root.rpartition("/")[2],
        digest=content_digest(fitted.encoders, report.row_groups),
        attempt=attempt.name,
        identity=config.data_identity,
        raw_schema=schema_to_text(schema),
        encoders=fitted.encoders,
        splits=split_summaries(fitted.encoders, report.row_groups),
        rows_parsed=balance.parsed,
        quarantined=dict(sorted(report.refused.items())),
        balance=balance,
        profile=fitted.profile,
        warnings=warnings,
        versions={"python": python_version()}
        | {package: version(package) for package in ("pyspark", "pyarrow", "numpy", "duckdb", "sqlglot")},
    )
