"""What Spark says of a query is told in a line, with what to do."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tables import source, write

from pipelines.errors import SourceError
from pipelines.etl.faults import source_errors
from pipelines.etl.sources import read_tables


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


def test_other_errors_pass(spark: SparkSession) -> None:
    with pytest.raises(ZeroDivisionError), source_errors(source(t={"format": "text", "path": "x"})):
        _ = 1 // 0
