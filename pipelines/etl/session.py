"""The Spark session: how it starts, what its content depends on, and what it prints."""

import logging
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType, VariantType

import pipelines
from pipelines.compat.spark import jvm
from pipelines.etl.driver import of_java
from pipelines.etl.leave import Leaving, without_broken_connections
from pipelines.etl.private import private_settings
from pipelines.sources.files import OPEN_BYTES

# What rows come out depends on these, so they are set whatever the cluster's defaults are.
CONTENT = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "true",
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.parquet.int96AsTimestamp": "true",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.parquet.mergeSchema": "false",
    # Of files that do not say which calendar they are in; a table's options can say LEGACY.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "parquet.page.verify-checksum.enabled": "true",
    # A parser that leaves out columns nobody asked for also leaves out what is wrong with them.
    "spark.sql.optimizer.enableCsvExpressionOptimization": "false",
    "spark.sql.optimizer.enableJsonExpressionOptimization": "false",
    "spark.sql.json.enableExactStringParsing": "true",
}
# These decide only how fast they come.
SPEED = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # Keeping a parsed table costs half the time, for 1.6 times the room; what does not fit goes to disk.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # Spark's own 4 MiB make a task of 32 small files, and its 10,000 a task of every folder that it lists.
    "spark.sql.files.openCostInBytes": str(OPEN_BYTES),
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "128",
}
TRIES = 4
"""So often a task is made before the job fails, as on a cluster; on one machine Spark's own number is one."""
BATCH_BYTES = 64 * 2**20
SHORT_ROW_BYTES = BATCH_BYTES // 65_536
# They print the stack of every failed task; the driver gets the same as an exception.
TALKATIVE = ("org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager")

NETLIB = "dev.ludovic.netlib"
HELD: list[Any] = []
"""Loggers of Java, which forgets the level of one that nothing refers to."""


def session(name: str) -> SparkSession:
    """The running session, or a new one: on the master that spark-submit names, else on all cores of this machine.

    Python workers run the interpreter that runs this, unless PYSPARK_PYTHON says otherwise (the system's own Python
    lacks pyarrow), and look for this package also where it was found here.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    under_submit = "PYSPARK_GATEWAY_PORT" in os.environ
    arguments = os.environ.setdefault("PYSPARK_SUBMIT_ARGS", "" if under_submit else "--master local[*] pyspark-shell")
    if "local" in arguments and not under_submit:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    without_broken_connections()
    leaving = Leaving()
    leaving.install()
    of_java.listen()
    # Progress is ours: Spark's own bar would be drawn where there is no terminal as well.
    settings: dict[str, Any] = {"spark.ui.showConsoleProgress": "false", "spark.executorEnv.PYTHONPATH": _python_path(), **_of_context()}
    spark = SparkSession.builder.appName(name).config(map=settings).getOrCreate()
    leaving.spark = spark
    leaving.install()  # once more: Spark has taken SIGINT for itself
    for key, value in {**CONTENT, **SPEED}.items():
        spark.conf.set(key, value)
    _hush(spark)
    return spark


def weigh_batches(rows: DataFrame, source_row_bytes: float) -> None:
    """Let Spark cut the batches that it hands to Python by their bytes, unless the rows are short scalars.

    It sizes the whole batch again for every row that it adds, a quarter of the transfer's time. Batches of 65,536 rows of
    SHORT_ROW_BYTES stay within BATCH_BYTES without that. `source_row_bytes` is an average.
    """
    scalars = not any(isinstance(field.dataType, BinaryType | ArrayType | MapType | StructType | VariantType) for field in rows.schema)
    unlimited = scalars and source_row_bytes <= SHORT_ROW_BYTES
    rows.sparkSession.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(2**31 - 1 if unlimited else BATCH_BYTES))


def _of_context() -> dict[str, str]:
    """What only a new context takes."""
    if SparkSession.getActiveSession() is not None:
        return {}
    master = _master()
    return {"spark.master": master, **private_settings(jvm(), master)}


def _master() -> str:
    """The master that was named; a machine by itself makes a task again as well."""
    named = str(jvm().System.getProperty("spark.master") or "local[*]")
    cores = re.fullmatch(r"local(?:\[(\d+|\*)\])?", named)
    return f"local[{cores[1] or 1},{TRIES}]" if cores else named


def _python_path() -> str:
    here = str(Path(pipelines.__file__).parents[1])
    return os.pathsep.join(dict.fromkeys([here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]))


def _hush(spark: SparkSession) -> None:
    """Have Spark print errors only, and not those that reach the driver as exceptions."""
    spark.sparkContext.setLogLevel("ERROR")
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    log4j, util = jvm().org.apache.logging.log4j, jvm().java.util.logging
    # That it computes without native libraries, which netlib says as if it were an error.
    netlib = util.Logger.getLogger(NETLIB)
    netlib.setLevel(util.Level.OFF)
    HELD[:] = [netlib]
    for logger in TALKATIVE:
        log4j.core.config.Configurator.setLevel(logger, log4j.Level.OFF)
