"""Settings of Spark that depend on the number of columns. None of them changes a value.

Above 100 columns Spark passes rows from one projection to the next, and generates a class for each. With thousands of columns, to
compile such classes takes longer than the rows. 5,000 rows of 3,000 columns took 60 s of processor time in the Java of `fit` and `write`
with generated projections, and 20 s with interpreted ones and short batches. One projection instead of two or three took 13 s.
"""

from pyspark.sql import DataFrame

from pipelines.runtime.compat.spark import query_execution
from pipelines.spark.plans import JavaObject, nodes

MOST_GENERATED_COLUMNS = 1_000
"""Rows of more columns are projected by Spark's interpreter."""
SCAN_CELLS, SCAN_ROWS = 2**19, (64, 4_096)
"""Cells and rows of a batch that Spark's reader of Parquet decodes at once; the second number of rows is Spark's default."""
CACHE_CELLS, CACHE_ROWS = 2**21, (64, 10_000)
"""The same of a batch of cached rows."""


def suit_columns(rows: DataFrame, is_judged_cheaply: bool = False) -> None:
    """Set what suits the number of columns of these rows, for the plans that Spark makes of them from now on.

    `is_judged_cheaply`: whether split, part and refusals are computed from few columns and without conditions, so that one projection
    may compute them several times.
    """
    columns = len(rows.columns)
    is_merged = is_judged_cheaply and columns > MOST_GENERATED_COLUMNS and _only_names_columns(query_execution(rows).analyzed())
    for key, value in column_settings(columns, is_merged).items():
        rows.sparkSession.conf.set(key, value)


def column_settings(columns: int, is_merged: bool = False) -> dict[str, str]:
    """The settings for this number of columns. `is_merged`: whether Spark merges projections even where that repeats an expression."""
    return {
        "spark.sql.parquet.columnarReaderBatchSize": str(rows_per_scan_batch(columns)),
        "spark.sql.inMemoryColumnarStorage.batchSize": str(rows_per_cached_batch(columns)),
        "spark.sql.codegen.factoryMode": "FALLBACK" if columns <= MOST_GENERATED_COLUMNS else "NO_CODEGEN",
        "spark.sql.optimizer.collapseProjectAlwaysInline": str(is_merged).lower(),
        # It compares each column with each other.
        "spark.sql.optimizer.nestedSchemaPruning.enabled": str(columns <= MOST_GENERATED_COLUMNS).lower(),
        # Spark's interpreter looks each common subexpression up in a cache, which takes longer than to compute whether a value is NULL.
        "spark.sql.subexpressionElimination.enabled": str(columns <= MOST_GENERATED_COLUMNS).lower(),
    }


def rows_per_scan_batch(columns: int) -> int:
    """Rows that Spark's reader of Parquet decodes at once. It then makes rows of the columns, and for each row touches the arrays of all
    columns: with many columns and 4,096 rows these lie on more pages of memory than the processor keeps addresses of."""
    least, most = SCAN_ROWS
    return max(least, min(most, SCAN_CELLS // max(columns, 1)))


def rows_per_cached_batch(columns: int) -> int:
    """Rows of a cached batch. Spark makes room for all of them before the first: for 10,000 of 3,000 columns, 240 MB in each task."""
    least, most = CACHE_ROWS
    return max(least, min(most, CACHE_CELLS // max(columns, 1)))


def _only_names_columns(plan: JavaObject) -> bool:
    """Whether a query computes nothing: its expressions have no bracket. Merged with ours, an expression could be computed many times."""
    return all("(" not in node.expressions().mkString(" ") for node in nodes(plan))
