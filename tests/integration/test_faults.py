"""Spark's errors of a query become one line that says what to do."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession
from tables import read_tables, source, write

from pipelines.data.sources.source_errors import source_errors
from pipelines.errors import DatasetError, SourceError
from pipelines.spark.job_endings import driver_errors


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT CAST(b AS int) FROM t", 'source.query.* cannot be cast to "INT".*`try_cast`.*CAST\\(b AS int\\)'),
        ("SELECT a / (a - 1) FROM t", "source.query.*Division by zero.*`try_divide`"),
        ("SELECT to_date(b, 'yyyy') FROM t", "source.query.*`try_to_date`"),
        ("SELECT c FROM t", "source.query.*`c` cannot be resolved.*`a`, `b`"),
        ("SELECT a FROM nowhere", "source.query.*`nowhere` cannot be found"),
        ("SELEKT a FROM t", "source.query.*Syntax error at or near 'SELEKT'"),
    ],
)
def test_faults_of_the_query_are_told_in_a_line(spark: SparkSession, tmp_path: Path, query: str, message: str) -> None:
    config = source(query, t={"format": "csv", "path": write(tmp_path, "a.csv", "1,x\n2,y\n"), "schema": "a int, b string"})
    read_tables(spark, config)
    with pytest.raises(SourceError, match=message) as caught, source_errors(config):
        spark.sql(query).collect()
    assert "\n" not in str(caught.value)
    assert "Exception" not in str(caught.value)


def test_a_process_of_spark_that_always_dies_is_told_in_a_line(spark: SparkSession) -> None:
    def exit_process(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        os._exit(9)
        yield from batches

    with pytest.raises(DatasetError, match="a process of Spark died each time"), source_errors(source(t={"format": "text", "path": "x"})):
        spark.range(1).mapInArrow(exit_process, "id bigint").collect()


def test_a_full_disk_is_named(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_disk_full(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/scratch")
    with pytest.raises(DatasetError, match=r"^no space left on /scratch, where"), source_errors(source(t={"format": "text", "path": "x"})):
        spark.range(1).mapInArrow(raise_disk_full, "id bigint").collect()


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "Connection refused"), Py4JNetworkError("Answer from Java side is empty")])
def test_a_java_driver_that_died_is_told_in_a_line(error: Exception) -> None:
    with pytest.raises(DatasetError, match="Spark's Java driver has died"), driver_errors():
        raise error


def test_other_errors_pass(spark: SparkSession) -> None:
    with pytest.raises(ZeroDivisionError), source_errors(source(t={"format": "text", "path": "x"})):
        _ = 1 // 0


def test_netlib_does_not_say_that_it_has_no_native_libraries(spark: SparkSession) -> None:
    logging = spark._jvm.java.util.logging
    for name in ("blas.InstanceBuilder", "lapack.InstanceBuilder"):
        assert not logging.Logger.getLogger(f"dev.ludovic.netlib.{name}").isLoggable(logging.Level.SEVERE)
