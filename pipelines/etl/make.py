"""Makes an attempt at a version: reads tables, judges rows, fits encoders, and writes all rows to parts or to the quarantine."""

import logging
from collections import Counter
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from pipelines.config import Config
from pipelines.config.did_you_mean import some_of
from pipelines.data.sources.formats import RawTables
from pipelines.data.sources.source_errors import source_errors
from pipelines.data.sources.tables import Tables, read_tables
from pipelines.data.versions.attempt import Attempt, Report
from pipelines.data.versions.manifest import SPLITS, Manifest
from pipelines.data.versions.sources import Sources
from pipelines.etl import placement
from pipelines.etl.describe import balanced, describe
from pipelines.etl.fit import Gathered, fit, gather
from pipelines.etl.quality import check_quarantined, expectations
from pipelines.etl.quarantine import sampled, write_malformed
from pipelines.etl.query import run_query
from pipelines.etl.raw_rows import RawRows, splits_with_raw_rows
from pipelines.etl.served import served_query
from pipelines.etl.shares import compared, of_windows
from pipelines.etl.text_casts import text_cast_notes
from pipelines.etl.write import Job, encoded_bytes, part_numbers, write_parts
from pipelines.runtime.compat.spark import query_execution
from pipelines.spark.progress import Stages
from pipelines.spark.session import weigh_batches
from pipelines.spark.wide_tables import suit_columns

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Made:
    """An attempt whose files are written, before its commit."""

    manifest: Manifest
    """Without run and sources."""
    report: Report
    gathered: Gathered


def make(
    spark: SparkSession,
    config: Config,
    sources: Sources,
    tables: RawTables,
    warnings: tuple[str, ...],
    attempt: Attempt,
    stages: Stages,
) -> Made:
    """Write the attempt's files. `warnings` are those of `analyse`.

    `tables` are the tables that the `sources` were computed from. Raises the LockstepErrors of its stages.
    """
    dataset, limit = config.dataset, config.source.max_quarantined
    with stages("read"), source_errors(config.source):
        found, malformed = _read(spark, tables, attempt, limit)
        rows = run_query(spark, config, steady=not warnings)
        notes = (*found.notes, *text_cast_notes(query_execution(rows).analyzed()))
        _log_query(rows, (*warnings, *notes), config)
        served = served_query(spark, config, rows)
        suit_columns(rows, is_judged_cheaply=bool(dataset.key) and not config.source.expect)
        weigh_batches(rows, sum(file.bytes for files in sources.values() for file in files) / max(found.rows_parsed, 1))
    with stages("fit"), source_errors(config.source):
        expected = expect(rows, config, steady=not warnings)
        judged = placement.dealt(expected, dataset.split)
        gathered = gather(judged, dataset)
        if gathered.keys_repeat:
            judged = placement.dealt(placement.refuse_repeats(expected, dataset.key), dataset.split)
            gathered = gather(judged, dataset)
        refused = malformed.refused + Counter(gathered.refused)
        # A join or a GROUP BY changes the number of rows, so the limit applies to all records and rows that could be refused.
        refusable = malformed.refused.total() + gathered.query_rows
        if refused.total() > limit * refusable:
            check_quarantined(refusable, refused, limit, malformed.samples | sampled(judged).samples)
        fitted = fit(gathered, dataset, found.handed_on)
        shares = compared(judged, gathered.rows, dataset)
    with stages("write"), source_errors(config.source):
        parts = part_numbers(encoded_bytes(judged, gathered.rows, fitted.encoders), dataset.part_bytes)
        allowed = int(limit * refusable) - malformed.refused.total()
        raw_rows = RawRows(dataset.key, splits_with_raw_rows(gathered.rows, fitted.encoders))
        written = write_parts(judged, Job(attempt, fitted.encoders, parts, dataset.row_group_bytes, allowed, raw_rows))
    balance = balanced(found, malformed, gathered, written)
    written.add(malformed)
    check_quarantined(refusable, written.refused, limit, written.samples)
    manifest = describe(config, attempt, gathered.schema, fitted, written, balance, warnings).model_copy(update={"notes": notes})
    placement.check_splits({number: manifest.splits[split].rows for number, split in enumerate(SPLITS)}, dataset.split)
    if any(settings.packs for settings in dataset.encoders.values()) and not shares.said:
        shares = of_windows({split: found.rows for split, found in manifest.splits.items()}, sum(gathered.rows.values()), dataset)
    return Made(manifest.model_copy(update={"served_query": served, "shares": shares}), written, gathered)


def _read(spark: SparkSession, tables: RawTables, attempt: Attempt, limit: float) -> tuple[Tables, Report]:
    """Read the tables, and write their malformed records to the quarantine."""
    found = read_tables(spark, tables)
    malformed = write_malformed(found.malformed, attempt) if found.malformed else Report()
    check_quarantined(found.rows_parsed, malformed.refused, limit, malformed.samples)
    return found, malformed


def expect(rows: DataFrame, config: Config, steady: bool) -> DataFrame:
    """The rows with their identity, or the reason for refusing them; persisted if not `steady`."""
    rows = expectations(placement.identified(rows, config.dataset.key), config.source.expect)
    return rows.persist() if not steady and config.source.expect else rows


def judge(rows: DataFrame, config: Config, steady: bool) -> DataFrame:
    """The rows with their identity and split, or the reason for refusing them; persisted if not `steady`."""
    return placement.dealt(placement.without_repeats(expect(rows, config, steady), config.dataset.key), config.dataset.split)


def _log_query(rows: DataFrame, warnings: tuple[str, ...], config: Config) -> None:
    for warning in warnings:
        log.warning("%s", warning)
    taken = {
        column for name, settings in config.dataset.encoders.items() for column in (*settings.inputs(name), *settings.learns_from(name))
    }
    if left_out := [name for name in rows.columns if name not in taken]:
        log.info("columns of the query left out: %s", some_of(left_out))
