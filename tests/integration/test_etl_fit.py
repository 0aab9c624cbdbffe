"""Fitting in Spark: one pass, exact for any partitions, on the driver or not."""

import json
import math
import re
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions

from pipelines.config import parse
from pipelines.config.dataset.dataset import ByFraction, Dataset
from pipelines.data.features.auto.choice import Choice
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.errors import ConfigError
from pipelines.etl.judge import fit_columns as fit_gathered
from pipelines.etl.splits import split_assignment
from pipelines.etl.statistics import gather as gathering
from pipelines.etl.statistics.gather import gather
from pipelines.etl.summary import column_profile
from pipelines.runtime.compat.spark import query_execution
from pipelines.spark.session import BATCH_BYTES, MOST_GENERATED_COLUMNS, column_settings, suit_columns, weigh_batches

DATASET = {
    "path": "data",
    "features": {
        "x": "standardize",
        "bin": {"encoder": "quantile", "column": "x", "bins": 16},
        "word": {"encoder": "vocabulary", "min_count": 3},
        "kind": {"encoder": "vocabulary", "max_size": 2},
        "bytes": {"encoder": "image", "shape": [1, 1, 2]},
        "hashed": {"encoder": "hash", "column": "word", "buckets": 5},
    },
    "target": {"y": "label"},
}


def dataset(**changes: object) -> Dataset:
    return parse({"name": "t", "source": {"query": "-"}, "dataset": DATASET | changes, "task": {"kind": "tabular"}}, "t").dataset


def table(spark: SparkSession) -> DataFrame:
    rows = spark.range(2_000).selectExpr(
        "IF(id % 9 = 0, NULL, CAST(id AS DOUBLE) / 7 - 1e6 * (id % 3)) AS x",
        "concat('w', CAST(sqrt(id * 31 % 997) AS INT)) AS word",
        "element_at(array('a', 'b', 'c', NULL), CAST(1 + id % 4 AS INT)) AS kind",
        "IF(id % 2 = 0, X'0001', NULL) AS bytes",
        "id % 3 AS y",
    )
    return split_assignment.assign_split(split_assignment.add_identity(rows, ()), dataset().split)


def fit(rows: DataFrame, settings: Dataset, most_rows: float = math.inf) -> tuple[dict[str, FittedEncoder], dict[str, dict[str, Any]]]:
    """The encoders, and the profiles of the raw columns."""
    summary = gather(rows, settings, most_rows=most_rows)
    return fit_gathered(summary, Choice(settings), {})[1], {name: column_profile(column) for name, column in summary.statistics.items()}


def fit_as_json(rows: DataFrame, most_rows: float = math.inf) -> str:
    encoders, profile = fit(rows, dataset(), most_rows)
    return json.dumps([{name: fitted.model_dump() for name, fitted in encoders.items()}, profile])


def test_p6_partitions_leave_no_trace_whoever_sums_the_counts(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table(spark).persist()
    expected = fit_as_json(rows)
    assert fit_as_json(rows.repartition(7)) == expected
    assert fit_as_json(rows.coalesce(1)) == expected
    assert fit_as_json(rows.repartition(3), most_rows=2_000) == expected
    monkeypatch.setattr(gathering, "COUNTS_ON_DRIVER", 0)
    assert fit_as_json(rows.repartition(5)) == expected
    rows.unpersist()


@pytest.mark.parametrize("most_rows", [math.inf, 300], ids=["in Spark", "on the driver"])
@pytest.mark.parametrize(("distinct", "keys_repeat"), [(300, False), (299, True)])
def test_a_repeated_key_is_noticed(spark: SparkSession, most_rows: float, distinct: int, keys_repeat: bool) -> None:
    keyed = spark.range(0, 300, 1, 3).selectExpr(f"id % {distinct} AS key", "'w' AS word", "id % 3 AS y")
    rows = split_assignment.assign_split(split_assignment.add_identity(keyed, ("key",)), dataset().split)
    assert gather(rows, dataset(key=["key"], features={"word": "vocabulary"}), most_rows=most_rows).keys_repeat == keys_repeat


def test_only_the_most_frequent_values_reach_the_driver_where_they_are_many(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    features = {"word": {"encoder": "vocabulary", "max_size": 3}}
    rows = table(spark)
    expected, profile_of_all = fit(rows, dataset(features=features))
    monkeypatch.setattr(gathering, "DISTINCT_ON_DRIVER", 3)
    by_driver = fit(rows, dataset(features=features))
    monkeypatch.setattr(gathering, "COUNTS_ON_DRIVER", 0)
    encoders, profile = fit(rows, dataset(features=features))
    assert (encoders, profile) == by_driver, "whoever sums the counts, and however many partitions there are"
    assert encoders == expected and len(profile["word"]["most_frequent"]) == 3
    assert profile["word"]["distinct"] == profile_of_all["word"]["distinct"] > 3


def test_the_profile_describes_the_training_split(spark: SparkSession) -> None:
    rows = table(spark)
    gathered = gather(rows, dataset())
    _, profile = fit(rows, dataset())
    train = rows.where(f"{split_assignment.SPLIT} = 0")
    assert gathered.rows == {number: rows.where(f"{split_assignment.SPLIT} = {number}").count() for number in range(3)}
    assert profile["bytes"] == {"rows": gathered.rows[0], "nulls": train.where("bytes IS NULL").count()}
    kinds = {row.kind: row["count"] for row in train.where("kind IS NOT NULL").groupBy("kind").count().collect()}
    assert profile["kind"]["most_frequent"] == kinds and profile["kind"]["distinct"] == 3
    moments = train.selectExpr("avg(x)", "stddev_pop(x)", "min(x)", "max(x)").head()
    values = [profile["x"][name] for name in ("mean", "deviation", "minimum", "maximum")]
    assert moments is not None and values == pytest.approx(list(moments), rel=1e-12)


def test_a_column_that_teaches_nothing(spark: SparkSession) -> None:
    rows = table(spark).withColumn("x", functions.lit(None).cast("double"))
    with pytest.raises(ConfigError, match=r"dataset.features.x: column x has no number in the training split"):
        fit(rows, dataset())


@pytest.mark.parametrize(
    ("sql", "row_bytes", "limited"),
    [("1 AS i, 'a' AS s", 100.0, False), ("1 AS i, 'a' AS s", 5_000.0, True), ("X'00' AS b", 10.0, True), ("array(1) AS a", 10.0, True)],
)
def test_batches_are_cut_by_bytes_where_rows_may_be_long(spark: SparkSession, sql: str, row_bytes: float, limited: bool) -> None:
    weigh_batches(spark.sql(f"SELECT {sql}"), row_bytes)
    limit = int(str(spark.conf.get("spark.sql.execution.arrow.maxBytesPerBatch")))
    assert (limit == BATCH_BYTES) == limited


@pytest.mark.parametrize(("first", "projections"), [("id AS c0", 1), ("id + 1 AS c0", 4)])
def test_very_many_columns_are_projected_once_unless_the_query_computes(spark: SparkSession, first: str, projections: int) -> None:
    columns = MOST_GENERATED_COLUMNS + 1
    rows = spark.range(1).selectExpr(first, *(f"id AS c{column}" for column in range(1, columns)))
    suit_columns(rows, is_judged_cheaply=True)
    try:
        judged = split_assignment.assign_split(split_assignment.add_identity(rows, ("c0",)), ByFraction())
        parts = {split: range(split, split + 1) for split in range(3)}
        plan = query_execution(split_assignment.assign_part(judged, parts)).executedPlan().toString()
    finally:
        suit_columns(spark.range(1))
    assert len(re.findall("Project ", plan)) == projections


def test_settings_for_many_columns_change_no_value(spark: SparkSession) -> None:
    rows = spark.range(300).selectExpr(
        "id",
        "CASE id % 5 WHEN 0 THEN NULL WHEN 1 THEN double('NaN') WHEN 2 THEN -0.0D WHEN 3 THEN double('-Infinity') ELSE id / 7D END AS x",
        "float(id) / 3 AS f",
        "IF(id % 4 = 0, NULL, concat('é', id % 11)) AS s",
        "CAST(id AS DECIMAL(20, 3)) / 8 AS d",
        "timestamp_micros(id * 1000003 - 7) AS t",
        "date_from_unix_date(int(id) - 100) AS day",
        "array(id, NULL, id % 3) AS a",
        "map(concat('k', id % 2), id, 'z', NULL) AS m",
        "named_struct('p', id % 2 = 0, 'q', unhex(hex(id))) AS n",
    )
    expected = split_assignment.add_identity(rows, ("id",)).where("id % 7 > 0")
    parts = {0: range(3), 1: range(3, 4), 2: range(4, 5)}
    tables = []
    for columns, is_merged in ((len(rows.columns), False), (3_000, True)):
        for key, value in column_settings(columns, is_merged).items():
            spark.conf.set(key, value)
        try:
            # A new DataFrame, since a plan is made once.
            placed = split_assignment.assign_part(split_assignment.assign_split(expected, ByFraction()), parts).selectExpr(
                "*", "to_json(n) AS text"
            )
            tables.append(placed.toArrow().sort_by("id"))
        finally:
            suit_columns(spark.range(1))
    assert tables[0].num_rows == 257
    # As text, in which NaN equals itself and -0.0 is not 0.0.
    assert [str(row) for row in tables[0].to_pylist()] == [str(row) for row in tables[1].to_pylist()]
