"""Expectations refuse rows under their names, and too many refused rows refuse the version."""

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipelines.errors import QualityError
from pipelines.etl.refusals import REASON, check_quarantined, refuse_unexpected
from pipelines.etl.splits.split_assignment import add_identity

ROWS = [(1, "a"), (2, None), (3, "b"), (None, "c"), (-1, None)]


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(ROWS, "age int, `na me` string")


def test_p8_a_row_is_kept_or_has_the_reason_why_it_is_not(rows: DataFrame) -> None:
    judged = refuse_unexpected(add_identity(rows, ()), {"aged": "age >= 0", "named": "`na me` IS NOT NULL", "not b": "`na me` <> 'b'"})
    assert {tuple(row) for row in judged.select("age", "`na me`", REASON).collect()} == {
        (1, "a", None),
        (2, None, "named"),
        (3, "b", "not b"),
        (None, "c", "aged"),
        (-1, None, "aged"),
    }


def test_without_expectations_every_row_is_kept(rows: DataFrame) -> None:
    assert [row[REASON] for row in refuse_unexpected(add_identity(rows, ()), {}).collect()] == [None] * len(ROWS)


def test_p8_too_many_refused_rows_refuse_the_version() -> None:
    check_quarantined(1_000, {"aged": 10}, limit=0.01, samples={})
    check_quarantined(0, {}, limit=0.0, samples={})
    with pytest.raises(QualityError) as caught:
        check_quarantined(1_000, {"aged": 4, "named": 7}, limit=0.01, samples={"named": '{"age": 2}'})
    assert str(caught.value).splitlines() == [
        "11 of 1,000 rows were refused (1.10%); source.max_quarantined allows 1.00%. Mend the source or the query, or raise it:",
        '  7 × named, such as {"age": 2}',
        "  4 × aged",
    ]
