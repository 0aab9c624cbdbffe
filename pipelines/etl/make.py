"""Makes an attempt at a version: reads tables, judges rows, fits encoders, and writes all rows to parts or to the quarantine."""

import logging
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from pipelines.config import Config
from pipelines.config.messages.words import name_list
from pipelines.data.features import Encoders, encoder_notes
from pipelines.data.features.auto.choice import Choice, describe_choice
from pipelines.data.sources.base import NoIncrementError, RawTables
from pipelines.data.sources.source_errors import source_errors
from pipelines.data.sources.tables import Tables, read_tables
from pipelines.data.versions.commit import Attempt, Report
from pipelines.data.versions.manifest import SPLITS, FittedEncoder, Manifest, ServedQuery, Shares, split_summaries
from pipelines.data.versions.raw_inputs import Sources
from pipelines.data.versions.rewrite import Removal, RewrittenPart
from pipelines.data.versions.row_groups import RowGroups, collect_row_groups
from pipelines.data.versions.source_files import collect_files
from pipelines.etl.increments.inherit import check_fit, inherit, rewrite_parts
from pipelines.etl.increments.known_keys import key_columns
from pipelines.etl.increments.plan import Increment, check_schema, resolve_dataset
from pipelines.etl.judge import fit_columns, judge_and_summarize, judge_new_rows
from pipelines.etl.plan_checks import text_cast_notes
from pipelines.etl.quarantine import sample_refused, write_malformed
from pipelines.etl.query import run_query
from pipelines.etl.refusals import check_quarantined
from pipelines.etl.served_query import translate_query
from pipelines.etl.splits import split_assignment
from pipelines.etl.splits.fold_assignment import count_rows_of_folds, divide_into_folds
from pipelines.etl.splits.shares import compare_shares, compare_window_shares
from pipelines.etl.statistics.gather import RowSummary
from pipelines.etl.statistics.page_summary import add_likeness, merge_page_summaries, page_fields
from pipelines.etl.summary import describe_version, log_notes, row_counts
from pipelines.etl.windows import check_order, describe_left_out
from pipelines.etl.write import (
    RawRowSelection,
    WritingJob,
    bytes_per_split,
    increment_part_bytes,
    part_numbers,
    splits_with_raw_rows,
    write_parts,
)
from pipelines.runtime.compat.spark import query_execution
from pipelines.spark.session import suit_columns, weigh_batches
from pipelines.spark.stages import Stages

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WrittenAttempt:
    """An attempt whose files are written, before its commit."""

    manifest: Manifest
    """Without run and sources."""
    report: Report
    new_rows: RowGroups
    """The row groups of the rows that it has read; those of a parent are in the report alone."""
    summary: RowSummary
    config: Config
    """With the features that its patterns and `auto` stand for."""


@dataclass(frozen=True)
class QueriedRows:
    """The rows of the query, and the tables that they come from."""

    rows: DataFrame
    tables: Tables
    malformed: Report
    """Records that no table's format or schema takes."""
    series_rows: int
    """Rows of the query before `source.windows` leaves some out; 0 without it."""
    warnings: tuple[str, ...]
    """Those of `analyse`; with any, the query may give other rows when it runs again."""
    notes: tuple[str, ...]


@dataclass(frozen=True)
class FittedRows:
    """Rows that are ready to be written, and the encoders for them."""

    rows: DataFrame
    """With their split and folds, or the reason for refusing them."""
    summary: RowSummary
    encoders: dict[str, FittedEncoder]
    choice: Choice
    shares: Shares
    config: Config
    """With the features that its patterns and `auto` stand for."""
    served_query: ServedQuery | None
    refusable_rows: int
    """Records and rows that could be refused. A join or a GROUP BY changes the number of rows, so the limit applies to all of them."""
    removals: tuple[Removal, ...] = ()
    """Rows of a parent that these replace."""


def make(
    spark: SparkSession,
    config: Config,
    sources: Sources,
    tables: RawTables,
    warnings: tuple[str, ...],
    attempt: Attempt,
    stages: Stages,
    increment: Increment | None = None,
) -> WrittenAttempt:
    """Write the attempt's files. `warnings` are those of `analyse`. `tables` are the tables that the `sources` were computed from; of an
    `increment`, its own are read. Raises the LockstepErrors of its stages, and NoIncrementError if its rows have
    drifted so far that encoders are to be fitted anew."""
    tables = increment.tables if increment else tables
    with stages("read"), source_errors(config.source):
        read = _read_new_rows if increment else read_and_query
        queried = read(spark, config, sources, tables, attempt, warnings)
    with stages("fit"), source_errors(config.source):
        fitted = _keep_encoders(config, queried, increment) if increment else _fit(spark, config, queried)
    with stages("write"), source_errors(config.source):
        fitted, written = _write(config, queried, fitted, attempt, increment)
        rewritten = _rewrite_parts(spark, fitted, increment, attempt, written) if increment else []
    return _check_and_describe(config, queried, fitted, written, attempt, increment, rewritten)


def _read_new_rows(
    spark: SparkSession, config: Config, sources: Sources, tables: RawTables, attempt: Attempt, warnings: tuple[str, ...]
) -> QueriedRows:
    """Read the tables of an increment, which may have no rows, and run the query. Raises NoIncrementError if the query finds no such
    columns in them: of all files together they may have more."""
    try:
        return read_and_query(spark, config, sources, tables, attempt, warnings, may_be_empty=True)
    except AnalysisException as error:
        raise NoIncrementError(f"the new rows alone cannot be read: {str(error).splitlines()[0]}") from error


def read_and_query(
    spark: SparkSession,
    config: Config,
    sources: Sources,
    tables: RawTables,
    attempt: Attempt,
    warnings: tuple[str, ...],
    may_be_empty: bool = False,
) -> QueriedRows:
    """Read the tables and run the query. Malformed records go to the quarantine, and series are checked to be in order. Raises SourceError
    or QualityError."""
    tables_read = read_tables(spark, tables, suit_columns, may_be_empty)
    malformed = write_malformed(tables_read.malformed, attempt) if tables_read.malformed else Report()
    check_quarantined(tables_read.rows_parsed, malformed.refused, config.source.max_quarantined, malformed.samples)
    windows = config.source.windows
    series_rows = check_order(spark.sql(config.source.sql), windows, config.dataset.split) if windows else 0
    rows = run_query(spark, config, is_deterministic=not warnings)
    notes = (*tables_read.notes, *text_cast_notes(query_execution(rows).analyzed()))
    log_notes((*warnings, *notes))
    suit_columns(rows, is_judged_cheaply=bool(config.dataset.key) and not config.source.expect)
    weigh_batches(rows, sum(collect_files(files).bytes for files in sources.values()) / max(tables_read.rows_parsed, 1))
    return QueriedRows(rows, tables_read, malformed, series_rows, warnings, notes)


def _fit(spark: SparkSession, config: Config, queried: QueriedRows) -> FittedRows:
    """Judge the rows, and fit the encoders, unless too many rows are refused or the splits are not what the config asks for."""
    judged = judge_and_summarize(queried.rows, config, queried.tables.rows_parsed, is_deterministic=not queried.warnings)
    summary, malformed, limit = judged.summary, queried.malformed, config.source.max_quarantined
    refused, refusable_rows = malformed.refused + Counter(summary.refused), malformed.refused.total() + summary.query_rows
    if refused.total() > limit * refusable_rows:
        check_quarantined(refusable_rows, refused, limit, malformed.samples | sample_refused(judged.rows).samples)
    choice, encoders = fit_columns(summary, judged.choice, queried.tables.handed_on)
    resolved = config.model_copy(update={"dataset": choice.dataset})
    for line in describe_choice(choice):
        log.info("%s", line)
    log_notes(encoder_notes(encoders))
    encoders_of_config = resolved.dataset.encoders.items()
    encoded = {column for name, settings in encoders_of_config for column in (*settings.inputs(name), *settings.learns_from(name))}
    if unused := [name for name in queried.rows.columns if name not in encoded]:
        log.info("columns of the query left out: %s", name_list(unused))
    served_query = translate_query(spark, resolved, queried.rows)
    divided = divide_into_folds(judged.rows, config.dataset.split)
    shares = compare_shares(judged.rows, summary.rows, config.dataset, judged.cuts_note or divided.note)
    return FittedRows(divided.rows, summary, encoders | divided.encoders, choice, shares, resolved, served_query, refusable_rows)


def _keep_encoders(config: Config, queried: QueriedRows, increment: Increment) -> FittedRows:
    """Judge the rows that came, and keep the parent's encoders, unless too many are refused."""
    parent = increment.parent.manifest
    check_schema(queried.rows, increment.parent)
    resolved = config.model_copy(update={"dataset": resolve_dataset(config.dataset, increment.parent)})
    rows, summary, removals = judge_new_rows(queried.rows, resolved, not queried.warnings, increment.parent)
    refused, refusable_rows = queried.malformed.refused + Counter(summary.refused), queried.malformed.refused.total() + summary.query_rows
    check_quarantined(refusable_rows, refused, config.source.max_quarantined, queried.malformed.samples)
    choice = Choice(resolved.dataset, reasons=parent.auto_reasons, left_out=parent.auto_left_out)
    encoders, query = dict(parent.encoders), parent.served_query
    return FittedRows(rows, summary, encoders, choice, parent.shares, resolved, query, refusable_rows, tuple(removals))


def _write(
    config: Config, queried: QueriedRows, fitted: FittedRows, attempt: Attempt, increment: Increment | None
) -> tuple[FittedRows, Report]:
    """Write the rows to parts or to the quarantine. An increment's rows are summed up for the page meanwhile."""
    dataset, rows_by_split = fitted.config.dataset, fitted.summary.rows
    split_bytes, part_bytes = bytes_per_split(fitted.rows, rows_by_split, fitted.encoders), dataset.part_bytes
    if increment:
        part_bytes = increment_part_bytes(split_bytes, dataset.row_group_bytes, part_bytes)
    parts = part_numbers(split_bytes, part_bytes)
    if not any(parts.values()):  # an increment may have nothing but refused rows, which some task has to keep
        parts = {**parts, split_assignment.TRAIN: range(1)}
    allowed = int(config.source.max_quarantined * fitted.refusable_rows) - queried.malformed.refused.total()
    raw_rows = RawRowSelection(dataset.key, splits_with_raw_rows(rows_by_split, fitted.encoders))
    keys = key_columns(dataset) if Encoders(fitted.encoders).packer is None else ()
    rows, page = add_likeness(fitted.rows, dataset) if increment else (fitted.rows, None)
    written = write_parts(rows, WritingJob(attempt, fitted.encoders, parts, dataset.row_group_bytes, keys, allowed, raw_rows, page))
    if increment:
        fitted = replace(fitted, summary=replace(fitted.summary, **page_fields(merge_page_summaries(written.page))))
    return fitted, written


def _rewrite_parts(spark: SparkSession, fitted: FittedRows, increment: Increment, attempt: Attempt, written: Report) -> list[RewrittenPart]:
    """Write the parts of the parent that lose rows, or that are merged, unless its encoders do not fit the rows that came."""
    dataset = fitted.config.dataset
    if dataset.refit == "drift":
        check_fit(increment.parent, attempt, written)
    return rewrite_parts(spark, increment.parent, fitted.removals, attempt, dataset.row_group_bytes)


def _check_and_describe(
    config: Config,
    queried: QueriedRows,
    fitted: FittedRows,
    written: Report,
    attempt: Attempt,
    increment: Increment | None,
    rewritten: list[RewrittenPart],
) -> WrittenAttempt:
    """Check what only the written rows tell: how many were refused, and whether a split or a fold is empty. Then make the manifest."""
    summary, split = fitted.summary, config.dataset.split
    notes = (*queried.notes, *encoder_notes(fitted.encoders))
    if config.source.windows and (left_out := describe_left_out(config.source.windows, queried.series_rows, summary.query_rows)):
        log_notes((left_out,))
        notes = (*notes, left_out)
    balance = row_counts(queried.tables, queried.malformed, summary, written)
    new_rows = collect_row_groups(written.row_groups)
    if increment:
        written = inherit(increment.parent, written, rewritten)
        inherited = sum(group.rows for group in written.row_groups) - int(new_rows.rows.sum())
        balance = balance.model_copy(update={"inherited": inherited})
    counts = written.class_counts
    encoders = {name: encoder.model_copy(update={"class_counts": tuple(counts.get(name, ()))}) for name, encoder in fitted.encoders.items()}
    written.add(queried.malformed)
    check_quarantined(fitted.refusable_rows, written.refused, config.source.max_quarantined, written.samples)
    folds, splits = count_rows_of_folds(attempt, written.row_groups, split), split_summaries(encoders, written.row_groups, written.row_sums)
    split_assignment.check_splits({number: splits[name].rows for number, name in enumerate(SPLITS)}, split)
    shares = fitted.shares
    if not shares.said and any(settings.packs for settings in fitted.config.dataset.encoders.values()):
        # Those of the windows where documents are packed, and nothing is to be said of the rows.
        windows = {name: written_split.rows for name, written_split in splits.items()}
        shares = compare_window_shares(windows, sum(summary.rows.values()), fitted.config.dataset)
    fields: dict[str, Any] = {"splits": splits, "warnings": queried.warnings, "notes": notes, "shares": shares, "folds": folds}
    fields |= {
        "auto_reasons": dict(fitted.choice.reasons),
        "auto_left_out": dict(fitted.choice.left_out),
        "served_query": fitted.served_query,
    }
    manifest = describe_version(config, attempt, summary, encoders, written, balance, **fields)
    if increment:
        parent = increment.parent.manifest
        manifest = manifest.model_copy(update={"parent": parent.version, "parent_digest": parent.digest, "profile": parent.profile})
    return WrittenAttempt(manifest, written, new_rows, summary, fitted.config)
