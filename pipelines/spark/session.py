"""Starts the Spark session, with all settings that the content depends on, and sets what depends on the number of columns, which changes no
value.

Above 100 columns Spark passes rows from one projection to the next, and generates a class for each. With thousands of columns, to
compile such classes takes longer than the rows. 5,000 rows of 3,000 columns took 60 s of processor time in the Java of `fit` and `write`
with generated projections, and 20 s with interpreted ones and short batches. One projection instead of two or three took 13 s.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType, VariantType

from pipelines.data.sources.files.files import OPEN_BYTES
from pipelines.runtime.compat.spark import query_execution
from pipelines.spark.ambient_settings import fix_settings
from pipelines.spark.context import start_context
from pipelines.spark.early_start import early_start
from pipelines.spark.job_endings import JobCancellation
from pipelines.spark.plans import nodes

# The rows depend on these, so they override the cluster's defaults. `ambient` resets all other settings that could change a value.
CONTENT = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # A type inferred from folders would change when one is added: 01 and 1 would be one value.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    # `${env:HOME}` in a query would be a value of the machine.
    "spark.sql.variable.substitute": "false",
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.parquet.int96AsTimestamp": "true",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.parquet.mergeSchema": "false",
    # Spark has no nanoseconds: `sources.parquet_table` rounds them.
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    # For files without a calendar; a table's options can set LEGACY.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "parquet.page.verify-checksum.enabled": "true",
    # A parser that skips unused columns also skips their faults.
    "spark.sql.optimizer.enableCsvExpressionOptimization": "false",
    "spark.sql.optimizer.enableJsonExpressionOptimization": "false",
    "spark.sql.json.enableExactStringParsing": "true",
}
# These only affect speed.
SPEED = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # Caching a parsed table takes half the time and 1.6 times the space; blocks that do not fit are spilled.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # Spark's default of 4 MiB makes tasks of 32 small files, and its 10,000 makes one task per folder listed.
    "spark.sql.files.openCostInBytes": str(OPEN_BYTES),
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "128",
}
BATCH_BYTES = 64 * 2**20
SHORT_ROW_BYTES = BATCH_BYTES // 65_536
MOST_GENERATED_COLUMNS = 1_000
"""Rows of more columns are projected by Spark's interpreter."""
SCAN_CELLS, SCAN_ROWS = 2**19, (64, 4_096)
"""Cells, and least and most rows, of a batch that Spark's reader of Parquet decodes at once; the second number of rows is Spark's default.
The reader makes rows of the columns, and for each row touches the arrays of all columns: with many columns and 4,096 rows these lie on more
pages of memory than the processor keeps addresses of."""
CACHE_CELLS, CACHE_ROWS = 2**21, (64, 10_000)
"""The same of a batch of cached rows. Spark makes room for all before the first: for 10,000 of 3,000 columns, 240 MB in each task."""


def session(name: str) -> SparkSession:
    """The running session, or a new one, with the settings of this project."""
    cancellation = JobCancellation()
    cancellation.install()
    early_start.wait()
    start_context(name)
    spark = SparkSession.builder.appName(name).getOrCreate()
    cancellation.spark = spark
    cancellation.install()  # again: Spark has replaced the handler of SIGINT
    fix_settings(spark, {**CONTENT, **SPEED, **column_settings(columns=0)})
    return spark


@contextmanager
def restored_settings() -> Iterator[None]:
    """Around a job: a session that runs before it, such as a notebook's, has its own settings again afterwards."""
    session = SparkSession.getActiveSession()
    if session is None:
        yield
        return
    before = session.conf.getAll
    try:
        yield
    finally:
        with suppress(PySparkException, Py4JError, OSError):  # Java may be gone
            for name in [name for name, value in session.conf.getAll.items() if before.get(name) != value]:
                if name in before:
                    session.conf.set(name, before[name])
                else:
                    session.conf.unset(name)


@contextmanager
def temporary_cache(spark: SparkSession) -> Iterator[None]:
    """Free Spark's cache at the end, unless the process ends on a signal, which may have interrupted a call to Spark."""
    try:
        yield
    except Exception:
        _free(spark)
        raise
    _free(spark)


def _free(spark: SparkSession) -> None:
    with suppress(PySparkException, Py4JError, OSError):
        spark.catalog.clearCache()


def weigh_batches(rows: DataFrame, source_row_bytes: float) -> None:
    """Let Spark cut the batches that it hands to Python by their bytes, unless the rows are short scalars.

    Spark recomputes the size of the whole batch for every row, which takes a quarter of the transfer's time. Batches of 65,536 rows of
    SHORT_ROW_BYTES stay within BATCH_BYTES anyway. `source_row_bytes` is an average."""
    scalars = not any(isinstance(field.dataType, BinaryType | ArrayType | MapType | StructType | VariantType) for field in rows.schema)
    unlimited = scalars and source_row_bytes <= SHORT_ROW_BYTES
    rows.sparkSession.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(2**31 - 1 if unlimited else BATCH_BYTES))


def suit_columns(rows: DataFrame, is_judged_cheaply: bool = False) -> None:
    """Set what suits the number of columns of these rows, for the plans that Spark makes of them from now on. `is_judged_cheaply`: whether
    split, part and refusals are computed from few columns and without conditions, so that one projection may compute them several times."""
    columns = len(rows.columns)
    is_merged = is_judged_cheaply and columns > MOST_GENERATED_COLUMNS
    if is_merged:
        # Only if the query computes nothing, so that no expression has a bracket: merged with ours, one could be computed many times.
        is_merged = all("(" not in node.expressions().mkString(" ") for node in nodes(query_execution(rows).analyzed()))
    for key, value in column_settings(columns, is_merged).items():
        rows.sparkSession.conf.set(key, value)


def column_settings(columns: int, is_merged: bool = False) -> dict[str, str]:
    """The settings for this number of columns. `is_merged`: whether Spark merges projections even where that repeats an expression."""
    return {
        "spark.sql.parquet.columnarReaderBatchSize": str(rows_per_batch(columns, SCAN_CELLS, SCAN_ROWS)),
        "spark.sql.inMemoryColumnarStorage.batchSize": str(rows_per_batch(columns, CACHE_CELLS, CACHE_ROWS)),
        "spark.sql.codegen.factoryMode": "FALLBACK" if columns <= MOST_GENERATED_COLUMNS else "NO_CODEGEN",
        "spark.sql.optimizer.collapseProjectAlwaysInline": str(is_merged).lower(),
        # It compares each column with each other.
        "spark.sql.optimizer.nestedSchemaPruning.enabled": str(columns <= MOST_GENERATED_COLUMNS).lower(),
        # Spark's interpreter looks each common subexpression up in a cache, which takes longer than to compute whether a value is NULL.
        "spark.sql.subexpressionElimination.enabled": str(columns <= MOST_GENERATED_COLUMNS).lower(),
    }


def rows_per_batch(columns: int, cells: int, limits: tuple[int, int]) -> int:
    """Rows of a batch with about so many cells, within the limits."""
    least, most = limits
    return max(least, min(most, cells // max(columns, 1)))
