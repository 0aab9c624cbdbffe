"""Expectations refuse rows under their names, and too many refused rows refuse the version."""

import json

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.errors import QualityError
from pipelines.etl.quality import check_quarantined, expectations, quarantine

ROWS = [(1, "a"), (2, None), (3, "b"), (None, "c"), (-1, None)]


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(ROWS, "age int, `na me` string")


def test_p8_a_row_is_kept_or_in_the_quarantine(rows: DataFrame) -> None:
    kept, refused = expectations(rows, {"aged": "age >= 0", "named": "`na me` IS NOT NULL", "not b": "`na me` <> 'b'"})
    assert [tuple(row) for row in kept.collect()] == [(1, "a")]
    assert refused is not None
    found = {(row.reason, tuple(json.loads(row.record).values()), row.source) for row in refused.collect()}
    assert found == {("named", (2, None), None), ("not b", (3, "b"), None), ("aged", (None, "c"), None), ("aged", (-1, None), None)}


def test_without_expectations_every_row_is_kept(rows: DataFrame) -> None:
    kept, refused = expectations(rows, {})
    assert kept.count() == len(ROWS)
    assert refused is None


def test_a_record_is_whole_json(rows: DataFrame) -> None:
    refused = quarantine(rows.where("age = 2"), F.lit("why"))
    assert [tuple(row) for row in refused.collect()] == [("why", '{"age":2,"na me":null}', None)]


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
