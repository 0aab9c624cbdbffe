"""The query of a config gives for the rows of a frame what ETL makes of the same rows, in their order."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tables import read_tables

from pipelines.config import Config
from pipelines.errors import ConfigError, SourceError
from pipelines.notebook.frame_query import frame_query
from pipelines.notebook.frames import first_config, plain_table

ROWS = 300
DRAW = np.random.default_rng(0)
MOMENTS = pd.Timestamp("1960-01-01") + pd.to_timedelta(DRAW.integers(0, 60 * 365 * 86_400, ROWS), "s")
FRAME = pd.DataFrame(
    {
        "came in": MOMENTS,
        "paid": MOMENTS.tz_localize("Asia/Tokyo"),
        "day": MOMENTS.date,
        "plan": pd.Categorical(DRAW.choice(["basic", "plus"], ROWS)),
        "age": pd.array(DRAW.integers(18, 80, ROWS), "Int64"),
        "member": DRAW.random(ROWS) < 0.5,
        "price": DRAW.lognormal(3, 1, ROWS).round(2),
        "left": np.where(DRAW.random(ROWS) < 0.1, None, DRAW.random(ROWS) < 0.4),
    }
)
FRAME.loc[5, ["came in", "age"]] = [pd.NaT, pd.NA]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))


def draft_frame(frame: Any, **overrides: Any) -> Config:
    return first_config(frame, "left", overrides, "churn", None)


def batch(frame: Any) -> pa.RecordBatch:
    (rows,) = plain_table(frame).to_batches()
    return rows


def test_a_drafted_query_gives_each_row_of_a_frame_what_etl_makes_of_it(spark: SparkSession) -> None:
    config = draft_frame(FRAME)
    query = frame_query(spark, config)
    names = sorted({name for feature, settings in config.dataset.features.items() for name in settings.inputs(feature)})
    assert not query.is_plain and {"came in_hour", "paid_month", "seconds_from_came in_to_paid"} <= set(names)
    read_tables(spark, config.source)
    expected = spark.sql(config.source.sql).select(*[f"`{name}`" for name in names]).toArrow()
    result, reasons = query.apply(spark, batch(FRAME.drop(columns="left").iloc[::-1]), names)
    assert reasons.null_count == ROWS, "no row is left out for its target"
    has_target = pa.array(FRAME["left"].notna()[::-1])
    expected_rows = result.filter(has_target) if len(expected) < ROWS else result
    assert expected_rows.to_pylist() == expected.to_pylist()[::-1]


def test_rows_that_the_query_leaves_out_and_values_of_another_type_have_a_reason(spark: SparkSession) -> None:
    sql = "SELECT *, hour(paid) AS hour FROM churn WHERE `left` IS NOT NULL AND age > 20"
    features = {"hour": "vocabulary", "age": "standardize"}
    config = draft_frame(FRAME, **{"source.query": sql, "source.expect": {"young": "age < 90"}, "dataset.features": features})
    rows = pd.DataFrame({"age": [30.0, 10.0, 40.5, 50.0, 99.0], "paid": FRAME["paid"].iloc[:5], "more": 1})
    result, reasons = frame_query(spark, config).apply(spark, batch(rows), ["hour", "age"])
    assert result["age"].to_pylist() == [30, 50] and len(result["hour"]) == 2
    assert [reason and reason[:34] for reason in reasons.to_pylist()] == [
        None, "the query leaves the row out", "the values of column age cannot be", None, "young",
    ]  # fmt: skip
    with pytest.raises(SourceError, match="the rows have no column paid"):
        frame_query(spark, config).apply(spark, batch(rows.drop(columns="paid")), ["hour", "age"])


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT *, lag(age) OVER (ORDER BY paid) AS before FROM churn", "Window takes rows together"),
        ("SELECT avg(age) AS age, left FROM churn GROUP BY left", "GROUP is not row by row"),
        ("SELECT *, (SELECT max(age) FROM churn) AS most FROM churn", "takes rows together"),
        ("SELECT a.* FROM churn a JOIN churn b ON a.age = b.age", "JOINS is not row by row"),
    ],
)
def test_a_query_that_takes_rows_together_is_refused(spark: SparkSession, sql: str, reason: str) -> None:
    config = draft_frame(FRAME, **{"source.query": sql, "dataset.features": {"age": "standardize"}})
    with pytest.raises(ConfigError, match=f"source.query: the model could not predict a frame like the one .*{reason}; make each row"):
        frame_query(spark, config)
