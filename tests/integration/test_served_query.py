"""A served model makes of raw rows what the query makes of them in ETL, or takes the query's columns; never anything else."""

import datetime
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipelines.config import Config, parse
from pipelines.etl.served import served_query
from pipelines.rowwise.evaluate import Evaluator

SERVED = [
    "IF(i = 999, NULL, i)", "CASE WHEN i < 0 THEN 'low' ELSE s END", "coalesce(i, 0)", "nvl(s, 'none')", "x / 3D",
    "x / y",
    "i % 7", "nullif(s, '?')", "x * y - 1D", "i + 1", "-i", "abs(x)", "s IN ('a', 'b')", "i BETWEEN 1 AND 9", "i <=> 3", "o AND i > 1",
    "NOT o", "length(s)", "startswith(s, 'a')", "substring(s, instr(s, ' ') + 1)", "concat(s, '!')", "cast(i AS bigint)", "greatest(x, y)",
    "x > 0.1", "d > DATE '2000-01-01'", "s IS NULL", "CAST(i AS DOUBLE)", "sqrt(x)", "i DIV 2", "least(i, 5)",
]  # fmt: skip
OTHERS = [
    "upper(s)", "f > 0.1", "isnan(x)", "CAST(x AS INT)", "CAST(x AS STRING)", "try_cast(s AS INT)", "CAST(s AS INT)", "round(x, 1)", "ln(x)", "hash(i)",
    "trim(s)",
    "substring(s, 0, 2)", "regexp_replace(s, '[a-c]', '')", "s RLIKE 'a'", "s LIKE 'a%'", "split(s, ' ')[0]", "date_format(d, 'yyyy')", "m * 2",
    "m / 3", "i / 2", "f * 2", "i + x", "CAST(f AS DOUBLE)", "i = '1'", "s = 1", "try_cast(s AS DOUBLE)", "CAST(o AS INT)", "substr(s, -2)",
    "CAST(d AS STRING)", "replace(s, '', 'x')", "concat(s, NULL)", "i & 3", "rand()", "uuid()", "lower(s)", "s || i", "x % 2", "s > 'a'",
    "CAST(i AS STRING)", "CAST(x AS FLOAT)", "TRY_CAST(b AS INT)", "contains(s, '')", "instr(s, '')", "endswith(s, 'x')", "i * i", "b + 1",
]  # fmt: skip
"""Of which some are served too; whichever are have to be equal."""


def config_of(query: str, **source: Any) -> Config:
    return parse(
        {
            "name": "served",
            "source": {"tables": {"t": {"format": "parquet", "path": "t"}}, "query": query, **source},
            "dataset": {"path": "data", "features": {"out": "vocabulary"}, "target": {"y": "binary"}},
            "task": {"kind": "tabular"},
        },
        "test",
    )


def raw_rows(seed: int, rows: int) -> pa.Table:
    """Ordinary values, and others than those that ETL itself tries."""
    random = np.random.default_rng(seed)

    def drawn(values: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array([values[place] for place in random.integers(0, len(values), rows)], kind)

    words = [
        "a",
        "b",
        "b c",
        " d",
        "a  b c",
        "?",
        "Straße",
        "ŉ x",
        "ﬁ",
        "🙂 🙂",
        "a\u00a0b",
        "-7",
        "+3",
        "0x1",
        "1_000",
        "١",
        "",
        None,
        "inf",
        "1.0",
    ]
    return pa.table(
        {
            "i": drawn([*range(-5, 15), 998, 999, 1000, 2**31 - 2, None], pa.int32()),
            "b": drawn([0, 7, -7, 2**53 + 1, 2**62, None], pa.int64()),
            "x": drawn([0.3, 2.5, 3.5, -2.5, 1e15, 1e-7, 123456789.125, -0.0, math.nan, math.inf, 7.0, None], pa.float64()),
            "y": drawn([1.0, 0.1, -3.0, 1e17, math.nan, None], pa.float64()),
            "f": drawn([0.1, 0.2, 16777216.0, -1.5, None], pa.float32()),
            "s": drawn(words, pa.string()),
            "o": drawn([True, False, None], pa.bool_()),
            "d": drawn([datetime.date(1999, 12, 31), datetime.date(2000, 1, 1), datetime.date(1500, 1, 1), None], pa.date32()),
            "m": drawn([Decimal("1.25"), Decimal("-2.75"), Decimal("0.05"), None], pa.decimal128(8, 2)),
        }
    )


@pytest.fixture(scope="module")
def views(spark: SparkSession) -> SparkSession:
    spark.createDataFrame(raw_rows(1, 200)).createOrReplaceTempView("t")
    return spark


@pytest.mark.parametrize("expression", [*SERVED, *OTHERS])
def test_an_expression_is_equal_to_spark_s_or_refused(views: SparkSession, expression: str) -> None:
    query = f"SELECT {expression} AS out, x > 0 AS y FROM t"
    try:
        rows = views.sql(query)
    except PySparkException:
        pytest.skip("Spark has no such expression")
    served = served_query(views, config_of(query), rows)
    if served is None:
        assert expression not in SERVED
        return
    fresh = raw_rows(2, 400)
    ours, raised = Evaluator().columns(fresh, served.columns)
    fine = pa.array([error is None for error in raised])
    views.createDataFrame(fresh.filter(fine), views.table("t").schema).createOrReplaceTempView("fresh")
    theirs = views.sql(query.replace("FROM t", "FROM fresh")).toArrow()["out"]
    assert repr(ours["out"].filter(fine).to_pylist()).replace("-0.0", "0.0") == repr(theirs.to_pylist()).replace("-0.0", "0.0")
