"""What the query may do, and what is said about it."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.config import Config, parse
from pipelines.errors import ConfigError
from pipelines.etl.query import run_query


def config(query: str, **dataset: Any) -> Config:
    base = {"path": "data", "features": {"i": "standardize"}, "target": {"x": "identity"}}
    return parse({"name": "t", "source": {"query": query}, "dataset": base | dataset, "task": {"kind": "tabular"}}, "t.yaml")


@pytest.fixture(autouse=True)
def tables(spark: SparkSession) -> None:
    spark.sql("SELECT * FROM VALUES (1, 0.5D, 'a'), (2, 1.5D, 'b') AS t(i, x, s)").createOrReplaceTempView("t")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT s, sum(x) AS x FROM t GROUP BY s", "sum of floating point numbers depends on the order of rows"),
        ("SELECT s, avg(x * 2) OVER (PARTITION BY s) AS x FROM t", "avg of floating point numbers"),
        ("SELECT stddev(i) AS x FROM t", "stddev of floating point numbers"),
        ("SELECT first(x) AS x FROM t", "first() depends on the order of rows or on chance"),
        ("SELECT any_value(x) AS x FROM t", "any_value() depends"),
        ("SELECT collect_list(x)[0] AS x FROM t", "collect_list() depends"),
        ("SELECT * FROM t LIMIT 1", "LIMIT or OFFSET without ORDER BY"),
        ("SELECT *, rand() AS r FROM t", "rand() depends on the order of rows or on chance"),
        ("SELECT *, uuid() AS r FROM t", "uuid() depends"),
        ("SELECT *, monotonically_increasing_id() AS r FROM t", "monotonically_increasing_id() depends"),
        ("SELECT *, transform(array(x), v -> v + rand()) AS r FROM t", "rand() depends"),
        ("SELECT *, first(rand()) OVER (ORDER BY i) AS r FROM t", "rand() depends"),
        ("SELECT *, row_number() OVER (ORDER BY rand()) AS r FROM t", "rand() depends"),
        ("SELECT *, now() AS r FROM t", "now() is another value in every run"),
        ("SELECT * FROM t TABLESAMPLE (50 PERCENT)", "TABLESAMPLE depends on how the files are cut"),
        ("WITH means AS (SELECT avg(x) AS m FROM t) SELECT t.* FROM t JOIN means ON x < m", "avg of floating point numbers"),
        ("SELECT *, (SELECT sum(x) FROM t) AS total FROM t", "sum of floating point numbers"),
        ("SELECT * FROM t WHERE EXISTS (SELECT i FROM t LIMIT 1)", "LIMIT or OFFSET without ORDER BY"),
    ],
)
def test_p6_what_may_come_out_otherwise_is_warned_of_by_name(spark: SparkSession, query: str, words: str) -> None:
    _, (warning,) = run_query(spark, config(query))
    assert warning.startswith(words)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT *, i + 1 AS j FROM t WHERE x > 0",
        "SELECT s, sum(i) AS i, avg(i) AS m, count(*) AS n, max(x) AS x, count_if(x > 0) AS c FROM t GROUP BY s",
        "SELECT sum(CAST(x AS DECIMAL(20, 6))) AS x FROM t",
        "SELECT * FROM t ORDER BY i LIMIT 1",
        "SELECT i, x FROM (SELECT * FROM t ORDER BY i LIMIT 1)",
        "SELECT a.i, b.x FROM t AS a JOIN t AS b USING (s)",
        "SELECT *, collect_list(x) OVER (ORDER BY i ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS history FROM t",
        "SELECT *, row_number() OVER (ORDER BY i) AS number FROM t",
        "SELECT s, array_sort(collect_list(struct(i, x))).x AS i, sort_array(collect_list(x), false) AS x FROM t GROUP BY s",
    ],
)
def test_what_cannot_is_not(spark: SparkSession, query: str) -> None:
    assert run_query(spark, config(query))[1] == ()


def test_p6_rows_of_chance_are_the_same_for_fitting_and_for_writing(spark: SparkSession) -> None:
    rows, _ = run_query(spark, config("SELECT id AS i, rand() AS x FROM range(100)"))
    assert rows.collect() == rows.repartition(3).orderBy("i").collect()
    rows.unpersist()


def test_a_query_that_only_selects_is_not_held_in_memory(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(5).write.parquet(str(tmp_path / "raw"))
    spark.read.parquet(str(tmp_path / "raw")).createOrReplaceTempView("raw")
    assert not run_query(spark, config("SELECT id + 1 AS i, 0 AS x FROM raw WHERE id > 0"))[0].is_cached
    assert run_query(spark, config("SELECT i, count(*) AS x FROM t GROUP BY i"))[0].is_cached


@pytest.mark.parametrize(
    ("query", "dataset", "words"),
    [
        ("SELECT i, x, x AS I FROM t", {}, "source.query gives i more than once; name its columns apart with AS"),
        ("SELECT i, x, s AS __part FROM t", {}, "source.query gives __part, a name that ETL needs"),
        ("SELECT i, x, s AS `a``b` FROM t", {}, "source.query gives a`b; Spark hands no name with a dot or a backtick to Python"),
        ("SELECT i, x AS `x.y`, s FROM t", {}, "source.query gives x.y; Spark hands no name with a dot or a backtick to Python"),
        ("SELECT i, x FROM t", {"key": ["id", "x"]}, "dataset.key: the query gives no column id; it gives i, x"),
        ("SELECT i, x FROM t", {"split": {"by": "fold"}}, "dataset.split.by: the query gives no column fold; it gives i, x"),
        (
            "SELECT i, x FROM t",
            {"split": {"time": "day", "validation": "1", "test": "2"}},
            "dataset.split.time: the query gives no column day",
        ),
        ("SELECT i, x FROM t", {"split": {"group": "user"}}, "dataset.split.group: the query gives no column user"),
    ],
)
def test_columns_that_cannot_be_meant(spark: SparkSession, query: str, dataset: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        run_query(spark, config(query, **dataset))
    assert str(raised.value).startswith(words)
