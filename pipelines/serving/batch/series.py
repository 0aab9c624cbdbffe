"""Rows to predict for which `source.windows` needs the rows before them: those stand in the input, too."""

import logging

from pyspark.sql import SparkSession

from pipelines.config.dataset.windows import WindowSettings
from pipelines.config.source.source import Source
from pipelines.errors import SourceError
from pipelines.etl.windows import check_order

log = logging.getLogger(__name__)


def count_rows_of_series(spark: SparkSession, source: Source) -> int:
    """The rows of the query before `source.windows` leaves some out; 0 without it. Raises SourceError if one has no place in its series."""
    return check_order(spark.sql(source.sql), source.windows) if source.windows else 0


def check_windows_are_complete(windows: WindowSettings | None, rows: int, complete_rows: int) -> None:
    """Logs how many of the query's `rows` have too few rows before them. Raises SourceError if all have."""
    if windows is None or rows <= complete_rows:
        return
    if not complete_rows:
        raise SourceError(
            f"source.windows: none of the {rows:,} rows has {windows.rows_before:,} rows of its series before it; give the last "
            f"{windows.rows_before:,} rows of each series with the rows to predict, in one --input"
        )
    log.info(
        "%s of %s rows are not predicted, since they have fewer than %s rows of their series before them",
        *[f"{number:,}" for number in (rows - complete_rows, rows, windows.rows_before)],
    )
