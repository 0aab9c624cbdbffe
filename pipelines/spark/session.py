"""Starts the Spark session, with all settings that the content depends on, and limits its output."""

import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType, VariantType

import pipelines
from pipelines.data.sources.files import OPEN_BYTES
from pipelines.runtime.compat.spark import jvm
from pipelines.spark.ambient_settings import check_python, environment_of_new_processes, executor_settings, fix_driver, fix_settings
from pipelines.spark.cancellation import JOB_MARK, JobCancellation, quiet_worker_settings, silence_broken_connections
from pipelines.spark.class_archive import use_class_archive
from pipelines.spark.driver import java_signals
from pipelines.spark.security import private_settings
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
TRIES = 4
"""Attempts at a task before the job fails, as on a cluster; Spark's default in local mode is one."""
BATCH_BYTES = 64 * 2**20
SHORT_ROW_BYTES = BATCH_BYTES // 65_536
# They print the stack of every failed task, or of every file on a full disk; the driver also receives these as exceptions. So does
# TaskContextImpl: a task that a signal cancels finds no blocks of broadcasts any more, as Java has removed them.
TALKATIVE = (
    "org.apache.spark.TaskContextImpl",
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.storage.DiskBlockObjectWriter",
)

NETLIB = "dev.ludovic.netlib"
JAVA_LOGGERS: list[Any] = []
"""Loggers of Java, which loses the level of a logger without references."""


def session(name: str) -> SparkSession:
    """The running session, or a new one: on the master that spark-submit names, else on all cores of this machine.

    Python workers use this interpreter, unless PYSPARK_PYTHON is set (the system's Python lacks pyarrow), and search for this
    package where this process found it.
    """
    check_python()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    under_submit = "PYSPARK_GATEWAY_PORT" in os.environ
    arguments = os.environ.setdefault("PYSPARK_SUBMIT_ARGS", "" if under_submit else "--master local[*] pyspark-shell")
    if "local" in arguments and not under_submit:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    silence_broken_connections()
    cancellation = JobCancellation()
    cancellation.install()
    use_class_archive()
    with environment_of_new_processes():
        java_signals.listen()
        fix_driver()
        # `progress` replaces Spark's bar, which is drawn even without a terminal.
        settings: dict[str, Any] = {"spark.ui.showConsoleProgress": "false"}
        for name, value in {"PYTHONPATH": _python_path(), **JOB_MARK}.items():
            settings[f"spark.executorEnv.{name}"] = value
        spark = SparkSession.builder.appName(name).config(map={**settings, **_context_settings()}).getOrCreate()
    cancellation.spark = spark
    cancellation.install()  # again: Spark has replaced the handler of SIGINT
    fix_settings(spark, {**CONTENT, **SPEED, **column_settings(columns=0)})
    _hush(spark)
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


def weigh_batches(rows: DataFrame, source_row_bytes: float) -> None:
    """Let Spark cut the batches that it hands to Python by their bytes, unless the rows are short scalars.

    Spark recomputes the size of the whole batch for every row, which takes a quarter of the transfer's time. Batches of 65,536 rows
    of SHORT_ROW_BYTES stay within BATCH_BYTES anyway. `source_row_bytes` is an average.
    """
    scalars = not any(isinstance(field.dataType, BinaryType | ArrayType | MapType | StructType | VariantType) for field in rows.schema)
    unlimited = scalars and source_row_bytes <= SHORT_ROW_BYTES
    rows.sparkSession.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(2**31 - 1 if unlimited else BATCH_BYTES))


def _context_settings() -> dict[str, str]:
    """Settings that only a new context accepts."""
    if SparkSession.getActiveSession() is not None:
        return {}
    master = _master()
    java = jvm()
    parts = (private_settings, quiet_worker_settings, executor_settings)
    return {"spark.master": master} | {key: value for settings in parts for key, value in settings(java, master).items()}


def _master() -> str:
    """The configured master; in local mode with retries of tasks."""
    master = str(jvm().System.getProperty("spark.master") or "local[*]")
    cores = re.fullmatch(r"local(?:\[(\d+|\*)\])?", master)
    return f"local[{cores[1] or 1},{TRIES}]" if cores else master


def _python_path() -> str:
    package_folder = str(Path(pipelines.__file__).parents[1])
    return os.pathsep.join(dict.fromkeys([package_folder, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]))


def _hush(spark: SparkSession) -> None:
    """Make Spark print only errors, and not those that reach the driver as exceptions."""
    spark.sparkContext.setLogLevel("ERROR")
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    log4j, util = jvm().org.apache.logging.log4j, jvm().java.util.logging
    # netlib reports the absence of native libraries as an error.
    netlib = util.Logger.getLogger(NETLIB)
    netlib.setLevel(util.Level.OFF)
    JAVA_LOGGERS[:] = [netlib]
    for logger in TALKATIVE:
        log4j.core.config.Configurator.setLevel(logger, log4j.Level.OFF)
