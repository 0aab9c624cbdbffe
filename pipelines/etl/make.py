"""Makes an attempt at a version: reads tables, judges rows, fits encoders, and writes all rows to parts or to the quarantine."""

import logging
import math
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import version
from platform import python_version

from pyspark.sql import DataFrame, SparkSession

from pipelines.config import Config
from pipelines.config.messages.did_you_mean import name_list
from pipelines.data.features.auto.choice import Choice
from pipelines.data.features.auto.exact import describe_choice
from pipelines.data.sources.base import RawTables
from pipelines.data.sources.source_errors import source_errors
from pipelines.data.sources.tables import Tables, read_tables
from pipelines.data.versions.attempt import Attempt, Report
from pipelines.data.versions.balance import Balance, TableBalance
from pipelines.data.versions.manifest import SPLITS, FittedEncoder, Manifest, content_digest, split_summaries
from pipelines.data.versions.schema import schema_to_text
from pipelines.data.versions.sources import Sources
from pipelines.etl.auto_features import choose_features
from pipelines.etl.fit import column_profile, fit_columns
from pipelines.etl.quality import check_quarantined, refuse_unexpected
from pipelines.etl.quarantine import sample_refused, write_malformed
from pipelines.etl.query import reads_one_table, run_query
from pipelines.etl.served.translation import translate_query
from pipelines.etl.splits import splits
from pipelines.etl.splits.folds import count_rows_of_folds, divide_into_folds
from pipelines.etl.splits.shares import compare_shares, compare_window_shares
from pipelines.etl.statistics.gather import gather
from pipelines.etl.statistics.row_summary import RowSummary
from pipelines.etl.text_casts import text_cast_notes
from pipelines.etl.windows import check_order, describe_left_out
from pipelines.etl.write import RawRowSelection, WritingJob, bytes_per_split, part_numbers, splits_with_raw_rows, write_parts
from pipelines.runtime.compat.spark import query_execution
from pipelines.spark.progress import Stages
from pipelines.spark.session import weigh_batches
from pipelines.spark.wide_tables import suit_columns

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WrittenAttempt:
    """An attempt whose files are written, before its commit."""

    manifest: Manifest
    """Without run and sources."""
    report: Report
    summary: RowSummary
    config: Config
    """With the features that its patterns and `auto` stand for."""


@dataclass(frozen=True)
class JudgedRows:
    """All rows with their split, or the reason for refusing them, and what the encoders are fitted on."""

    rows: DataFrame
    cuts_note: str
    choice: Choice
    summary: RowSummary


def make(
    spark: SparkSession,
    config: Config,
    sources: Sources,
    tables: RawTables,
    warnings: tuple[str, ...],
    attempt: Attempt,
    stages: Stages,
) -> WrittenAttempt:
    """Write the attempt's files. `warnings` are those of `analyse`.

    `tables` are the tables that the `sources` were computed from. Raises the LockstepErrors of its stages.
    """
    dataset, limit = config.dataset, config.source.max_quarantined
    with stages("read"), source_errors(config.source):
        tables_read, malformed = _read(spark, tables, attempt, limit)
        series_rows = _check_series(spark, config)
        rows = run_query(spark, config, is_deterministic=not warnings)
        notes = (*tables_read.notes, *text_cast_notes(query_execution(rows).analyzed()))
        log_notes((*warnings, *notes))
        suit_columns(rows, is_judged_cheaply=bool(dataset.key) and not config.source.expect)
        weigh_batches(rows, sum(file.bytes for files in sources.values() for file in files) / max(tables_read.rows_parsed, 1))
    with stages("fit"), source_errors(config.source):
        expected = expect(rows, config, is_deterministic=not warnings)
        most_rows = tables_read.rows_parsed if reads_one_table(rows) else math.inf
        judged = _judge(expected, config, tables_read.rows_parsed, most_rows)
        if judged.summary.keys_repeat:
            judged = _judge(splits.refuse_repeats(expected, dataset.key), config, tables_read.rows_parsed, most_rows)
        row_summary = judged.summary
        refused = malformed.refused + Counter(row_summary.refused)
        # A join or a GROUP BY changes the number of rows, so the limit applies to all records and rows that could be refused.
        refusable = malformed.refused.total() + row_summary.query_rows
        if refused.total() > limit * refusable:
            check_quarantined(refusable, refused, limit, malformed.samples | sample_refused(judged.rows).samples)
        choice, encoders = fit_columns(row_summary, judged.choice, tables_read.handed_on)
        resolved = config.model_copy(update={"dataset": choice.dataset})
        for line in describe_choice(choice):
            log.info("%s", line)
        _log_query(rows, resolved)
        translation = translate_query(spark, resolved, rows)
        divided = divide_into_folds(judged.rows, dataset.split)
        shares = compare_shares(judged.rows, row_summary.rows, dataset, judged.cuts_note or divided.note)
        encoders |= divided.encoders
    with stages("write"), source_errors(config.source):
        parts = part_numbers(bytes_per_split(judged.rows, row_summary.rows, encoders), dataset.part_bytes)
        allowed = int(limit * refusable) - malformed.refused.total()
        raw_rows = RawRowSelection(dataset.key, splits_with_raw_rows(row_summary.rows, encoders))
        written = write_parts(divided.rows, WritingJob(attempt, encoders, parts, dataset.row_group_bytes, allowed, raw_rows))
    if config.source.windows and (left_out := describe_left_out(config.source.windows, series_rows, row_summary.query_rows)):
        notes = (*notes, left_out)
        log_notes((left_out,))
    counts = written.class_counts
    encoders = {name: fitted.model_copy(update={"class_counts": tuple(counts.get(name, ()))}) for name, fitted in encoders.items()}
    balance = row_counts(tables_read, malformed, row_summary, written)
    written.add(malformed)
    check_quarantined(refusable, written.refused, limit, written.samples)
    manifest = describe_version(config, attempt, row_summary, encoders, written, balance, warnings).model_copy(
        update={"notes": notes, "auto_reasons": dict(choice.reasons), "auto_left_out": dict(choice.left_out)}
    )
    folds = count_rows_of_folds(attempt, written.row_groups, dataset.split)
    splits.check_splits({number: manifest.splits[split].rows for number, split in enumerate(SPLITS)}, dataset.split)
    if any(settings.packs for settings in choice.dataset.encoders.values()) and not shares.said:
        shares = compare_window_shares(
            {split: windows.rows for split, windows in manifest.splits.items()}, sum(row_summary.rows.values()), dataset
        )
    return WrittenAttempt(
        manifest.model_copy(update={"served_query": translation, "shares": shares, "folds": folds}), written, row_summary, resolved
    )


def _judge(expected: DataFrame, config: Config, rows_parsed: int, most_rows: float) -> JudgedRows:
    """Split the rows, which are `most_rows` or fewer, choose encoders for `auto`, and summarise the rows."""
    dataset = config.dataset
    cuts = splits.stratify(expected, dataset.split)
    rows = splits.assign_split(expected, dataset.split, cuts)
    choice = choose_features(rows, dataset, rows_parsed)
    summary = gather(rows, choice.dataset, sorted(choice.columns_read), most_rows)
    return JudgedRows(rows, cuts.note if cuts else "", choice, summary)


def _read(spark: SparkSession, tables: RawTables, attempt: Attempt, limit: float) -> tuple[Tables, Report]:
    """Read the tables, and write their malformed records to the quarantine."""
    tables_read = read_tables(spark, tables)
    malformed = write_malformed(tables_read.malformed, attempt) if tables_read.malformed else Report()
    check_quarantined(tables_read.rows_parsed, malformed.refused, limit, malformed.samples)
    return tables_read, malformed


def _check_series(spark: SparkSession, config: Config) -> int:
    """The rows of the query before `source.windows` leaves some out; 0 without it."""
    windows = config.source.windows
    return check_order(spark.sql(config.source.sql), windows, config.dataset.split) if windows else 0


def expect(rows: DataFrame, config: Config, is_deterministic: bool) -> DataFrame:
    """The rows with their identity, or the reason for refusing them; persisted if not `is_deterministic`."""
    rows = refuse_unexpected(splits.add_identity(rows, config.dataset.key), config.source.expect)
    return rows.persist() if not is_deterministic and config.source.expect else rows


def judge(rows: DataFrame, config: Config, is_deterministic: bool) -> DataFrame:
    """The rows with their identity and split, or the reason for refusing them; persisted if not `is_deterministic`."""
    expected = splits.find_and_refuse_repeats(expect(rows, config, is_deterministic), config.dataset.key)
    return splits.assign_split(expected, config.dataset.split)


def log_notes(notes: tuple[str, ...]) -> None:
    """Log what a person may want to change, each in a line."""
    for note in notes:
        log.warning("%s", note)


def _log_query(rows: DataFrame, config: Config) -> None:
    encoded_columns = {
        column for name, settings in config.dataset.encoders.items() for column in (*settings.inputs(name), *settings.learns_from(name))
    }
    if unused := [name for name in rows.columns if name not in encoded_columns]:
        log.info("columns of the query left out: %s", name_list(unused))


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
    summary: RowSummary,
    encoders: dict[str, FittedEncoder],
    report: Report,
    balance: Balance,
    warnings: tuple[str, ...],
) -> Manifest:
    """The manifest without its run and its sources."""
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
