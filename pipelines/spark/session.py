"""Starts the Spark session, with all settings that the content depends on."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType, VariantType

from pipelines.data.sources.files.files import OPEN_BYTES
from pipelines.spark.ambient_settings import fix_settings
from pipelines.spark.cancellation import JobCancellation
from pipelines.spark.context import start_context
from pipelines.spark.early_start import early_start
from pipelines.spark.wide_tables import column_settings

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
    # Spark has no nanoseconds: `sources.parquet` rounds them.
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

    Spark recomputes the size of the whole batch for every row, which takes a quarter of the transfer's time. Batches of 65,536 rows
    of SHORT_ROW_BYTES stay within BATCH_BYTES anyway. `source_row_bytes` is an average.
    """
    scalars = not any(isinstance(field.dataType, BinaryType | ArrayType | MapType | StructType | VariantType) for field in rows.schema)
    unlimited = scalars and source_row_bytes <= SHORT_ROW_BYTES
    rows.sparkSession.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(2**31 - 1 if unlimited else BATCH_BYTES))
