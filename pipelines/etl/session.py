"""The Spark session: how it starts, and the settings that content depends on."""

import os
import sys

from pyspark.sql import SparkSession

from pipelines.etl.data_sources import DATA_SOURCES

# What rows come out depends on these, so they are set whatever the cluster's defaults are.
CONTENT = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.parquet.int96AsTimestamp": "true",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.parquet.mergeSchema": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "parquet.page.verify-checksum.enabled": "true",
}
# These only decide how fast they come.
SPEED = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}


def session(name: str) -> SparkSession:
    """The running session, or a new one: on the master that spark-submit names, else on all cores of this machine.

    Python workers run the interpreter that runs this, unless PYSPARK_PYTHON says otherwise: the system's own Python
    lacks pyarrow.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        os.environ.setdefault("PYSPARK_SUBMIT_ARGS", "--master local[*] pyspark-shell")
    if "local" in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = builder.getOrCreate()
    for key, value in {**CONTENT, **SPEED}.items():
        spark.conf.set(key, value)
    spark.sparkContext.setLogLevel("ERROR")
    for source in DATA_SOURCES:
        spark.dataSource.register(source)
    return spark
