"""Reads the raw tables and runs the query over them. Malformed records go to the quarantine, and series are checked to be in order.

`collect_sources` lists the files of the tables, and `check_unchanged` finds out whether any has changed since.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pipelines.config import Config
from pipelines.config.source.source import Source
from pipelines.data.sources.base import RawTable, RawTables
from pipelines.data.sources.source_errors import naming_table, source_errors
from pipelines.data.sources.tables import Tables, read_tables
from pipelines.data.versions.commit import Attempt, Report
from pipelines.data.versions.raw_inputs import SourceFile, Sources
from pipelines.errors import SourceError
from pipelines.etl.plan_checks import text_cast_notes
from pipelines.etl.quality import check_quarantined
from pipelines.etl.quarantine import write_malformed
from pipelines.etl.query import run_query
from pipelines.etl.summary import log_notes
from pipelines.etl.windows import check_order
from pipelines.runtime.compat.spark import query_execution
from pipelines.spark.session import suit_columns, weigh_batches


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

    @property
    def is_deterministic(self) -> bool:
        return not self.warnings


def read_and_query(
    spark: SparkSession, config: Config, sources: Sources, tables: RawTables, attempt: Attempt, warnings: tuple[str, ...]
) -> QueriedRows:
    """Read the tables and run the query. Raises SourceError or QualityError."""
    tables_read, malformed = _read_tables(spark, tables, attempt, config.source.max_quarantined)
    windows = config.source.windows
    series_rows = check_order(spark.sql(config.source.sql), windows, config.dataset.split) if windows else 0
    rows = run_query(spark, config, is_deterministic=not warnings)
    notes = (*tables_read.notes, *text_cast_notes(query_execution(rows).analyzed()))
    log_notes((*warnings, *notes))
    suit_columns(rows, is_judged_cheaply=bool(config.dataset.key) and not config.source.expect)
    weigh_batches(rows, sum(file.bytes for files in sources.values() for file in files) / max(tables_read.rows_parsed, 1))
    return QueriedRows(rows, tables_read, malformed, series_rows, warnings, notes)


def _read_tables(spark: SparkSession, tables: RawTables, attempt: Attempt, limit: float) -> tuple[Tables, Report]:
    """Read the tables, and write their malformed records, a share of at most `limit`, to the quarantine."""
    tables_read = read_tables(spark, tables, suit_columns)
    malformed = write_malformed(tables_read.malformed, attempt) if tables_read.malformed else Report()
    check_quarantined(tables_read.rows_parsed, malformed.refused, limit, malformed.samples)
    return tables_read, malformed


def check_unchanged(tables: RawTables, before: Sources) -> None:
    """Raises SourceError if a table's `state` has changed: its rows may be a mixture."""
    for name, table in tables.items():
        if changed := sorted({file.path for file in set(before[name]) ^ set(table.state())}):
            raise SourceError(f"source.tables.{name}: {', '.join(changed[:5])} changed while being read; run again once it is whole")


def collect_sources(source: Source, tables: RawTables, read_files: Callable[[RawTable[Any]], tuple[SourceFile, ...]]) -> Sources:
    """The files of each table, which `read_files` lists. Raises SourceError, with the name of the table, if that fails."""
    sources = {}
    for name, table in tables.items():
        with naming_table(name), source_errors(source):
            sources[name] = read_files(table)
    return sources
