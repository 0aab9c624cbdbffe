"""A served model makes of raw rows what the query makes of them in ETL, or takes the query's columns; never anything else."""

import datetime
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb
import mlflow
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import PyFuncModel
from pyspark.sql import SparkSession
from stores import new_store

from pipelines.config import Config, parse
from pipelines.data.rowwise.engine import Evaluator, open_locked_database
from pipelines.data.versions.manifest import Manifest, ServedQuery
from pipelines.data.versions.schema import schema_to_text
from pipelines.etl.run import run
from pipelines.etl.served_query import translate_query
from pipelines.serving.model import Predictor, log_model
from pipelines.tasks.bind import build_task

SERVED = [
    "IF(i = 999, NULL, i)", "CASE WHEN i < 0 THEN 'low' ELSE s END", "coalesce(i, 0)", "nvl(s, 'none')", "x / 3D", "x / y", "i % 7",
    "nullif(s, '?')", "x * y - 1D", "i + 1", "-i", "abs(x)", "s IN ('a', 'b')", "i BETWEEN 1 AND 9", "i <=> 3", "o AND i > 1", "NOT o",
    "length(s)", "startswith(s, 'a')", "substring(s, instr(s, ' ') + 1)", "concat(s, '!')", "cast(i AS bigint)", "greatest(x, y)",
    "x > 0.1", "d > DATE '2000-01-01'", "s IS NULL", "CAST(i AS DOUBLE)", "sqrt(x)", "i DIV 2", "least(i, 5)", "trim(s)", "m > 1.25",
    "s RLIKE '^[$+-]?[0-9]+$'", "translate(s, 'ab ', 'x')", "try_cast(i AS DOUBLE)",
    "CASE WHEN s RLIKE '^[+-]?[0-9]+([.][0-9]+)?$' THEN try_cast(translate(s, '+', '') AS DOUBLE) END",
]  # fmt: skip
OTHERS = [
    "upper(s)", "f > 0.1", "isnan(x)", "CAST(x AS INT)", "CAST(x AS STRING)", "try_cast(s AS INT)", "CAST(s AS INT)", "round(x, 1)",
    "ln(x)", "hash(i)", "ltrim(s)", "substring(s, 0, 2)", "regexp_replace(s, '[a-c]', '')", "s RLIKE 'a'", "s LIKE 'a%'",
    "split(s, ' ')[0]", "date_format(d, 'yyyy')", "m * 2", "m / 3", "i / 2", "f * 2", "i + x", "CAST(f AS DOUBLE)", "i = '1'", "s = 1",
    "CAST(o AS INT)", "substr(s, -2)", "CAST(d AS STRING)", "replace(s, '', 'x')", "concat(s, NULL)", "i & 3",
    "rand()", "uuid()", "lower(s)", "s || i", "x % 2", "s > 'a'", "CAST(i AS STRING)", "CAST(x AS FLOAT)", "TRY_CAST(b AS INT)",
    "contains(s, '')", "instr(s, '')", "endswith(s, 'x')", "i * i", "b + 1", "try_cast(s AS DATE)", "CAST(s AS BOOLEAN)",
    "t > TIMESTAMP '2000-01-01 00:00:00'", "CAST(d AS TIMESTAMP)", "t IS NULL", "concat(s, x)",
    "locate('a', s, 2)", "trim(BOTH 'a' FROM s)", "d > '2000-01-01'", "CAST(i AS SMALLINT)", "i * 1.5",
    "s RLIKE '[0-9]{1,2}?$'", "s RLIKE '(?i)B'", "translate(s, s, 'b')",
    "try_cast(s AS DOUBLE)", "try_cast(f AS DOUBLE)", "try_cast(x AS DOUBLE)",
]  # fmt: skip
"""Of which some are served too; whichever are have to be equal."""


def make_config(query: str, **source: Any) -> Config:
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

    def draw_rows(values: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array([values[place] for place in random.integers(0, len(values), rows)], kind)

    words = [
        "a", "b", "b c", " d", "a  b c", "?", "Straße", "ŉ x", "ﬁ", "🙂 🙂", "a\u00a0b", "\u00a0a", "\u3000b ", "-7", "+3", "0x1",
        "1_000", "١", "", None, "inf", "1.0", "2026-1", "no",
    ]  # fmt: skip
    return pa.table(
        {
            "i": draw_rows([*range(-5, 15), 998, 999, 1000, 2**31 - 2, None], pa.int32()),
            "b": draw_rows([0, 7, -7, 2**53 + 1, 2**62, None], pa.int64()),
            "x": draw_rows([0.3, 2.5, 3.5, -2.5, 1e15, 1e-7, 123456789.125, -0.0, math.nan, math.inf, 7.0, None], pa.float64()),
            "y": draw_rows([1.0, 0.1, -3.0, 1e17, math.nan, None], pa.float64()),
            "f": draw_rows([0.1, 0.2, 16777216.0, -1.5, None], pa.float32()),
            "s": draw_rows(words, pa.string()),
            "o": draw_rows([True, False, None], pa.bool_()),
            "d": draw_rows([datetime.date(1999, 12, 31), datetime.date(2000, 1, 1), datetime.date(1500, 1, 1), None], pa.date32()),
            "t": draw_rows([datetime.datetime(2000, 1, 1, 1, tzinfo=datetime.UTC), None], pa.timestamp("us", "UTC")),
            "l": draw_rows([True, False], pa.bool_()),
            "m": draw_rows([Decimal("1.25"), Decimal("-2.75"), Decimal("0.05"), None], pa.decimal128(8, 2)),
        }
    )


@pytest.fixture(scope="module")
def views(spark: SparkSession) -> SparkSession:
    spark.createDataFrame(raw_rows(1, 200)).createOrReplaceTempView("t")
    return spark


@pytest.mark.parametrize("expression", [*SERVED, *OTHERS])
def test_an_expression_is_equal_to_spark_s_or_refused(views: SparkSession, expression: str) -> None:
    query = f"SELECT {expression} AS out, l AS y FROM t"
    rows = views.sql(query)
    served = translate_query(views, make_config(query), rows)
    if served is None:
        assert expression not in SERVED
        return
    fresh = raw_rows(2, 400)
    duckdb_columns, raised = Evaluator().columns(fresh, served.columns)
    fine = pa.array([error is None for error in raised])
    views.createDataFrame(fresh.filter(fine), views.table("t").schema).createOrReplaceTempView("fresh")
    spark_columns = views.sql(query.replace("FROM t", "FROM fresh")).toArrow()["out"]
    assert repr(duckdb_columns["out"].filter(fine).to_pylist()).replace("-0.0", "0.0") == repr(spark_columns.to_pylist()).replace(
        "-0.0", "0.0"
    )


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT m / 3 > 0.4167 AS out, l AS y FROM t", "of DuckDB's"),
        ("SELECT i + CAST(1 AS SMALLINT) * CAST(1 AS SMALLINT) > 3 AS out, l AS y FROM t", None),
        ("SELECT IF(x BETWEEN 1 AND 100, CAST(x AS STRING), s) AS out, l AS y FROM t", "casts"),
        ("SELECT CAST(IF(x BETWEEN 1 AND 100, x, 1D) AS STRING) AS out, l AS y FROM t", "casts"),
        ("SELECT IF(length(s) = 1, try_cast(s AS INT), 0) AS out, l AS y FROM t", "casts"),
        ("SELECT i + 1 AS out, l AS y FROM t WHERE s = 'nobody'", "keeps none"),
        ("SELECT i + 1 AS out, upper(s) = 'A' AS y FROM t", None),
        ("SELECT substring(s, 3) AS out, upper(s) LIKE 'A%' AS y FROM t", "the target is made of s"),
        ("SELECT upper(s) AS out, l AS y FROM t", "UPPER"),
        ("SELECT i + 1 AS out, x > 0 AS y, explode(array(1, 2)) AS z FROM t", "keeps"),
        ("SELECT i + 1 AS i, i AS out, l AS y FROM t", None),
        ("SELECT i + 1 AS out, max(x) OVER () > 0 AS y FROM t", None),
        ("SELECT DISTINCT i + 1 AS out, l AS y FROM t", "DISTINCT"),
        ("SELECT i + 1 AS out, l AS y FROM t LIMIT 5", "LIMIT"),
        ("SELECT i + 1 AS out, l AS y FROM t UNION ALL SELECT i + 1, l FROM t", "keeps"),
    ],
)
def test_what_shows_only_in_few_rows_or_none_is_found_too(
    views: SparkSession, caplog: pytest.LogCaptureFixture, query: str, reason: str | None
) -> None:
    with caplog.at_level("DEBUG", "pipelines"):
        served = translate_query(views, make_config(query), views.sql(query))
    assert (served is None) == (reason is not None)
    assert (reason or "the model will take rows of t") in caplog.text


def test_a_table_whose_name_is_a_number_is_served(views: SparkSession) -> None:
    views.table("t").createOrReplaceTempView("`2024`")
    query = "SELECT i + 1 AS out, l AS y FROM `2024`"
    served = translate_query(views, make_config(query, tables={"2024": {"format": "parquet", "path": "t"}}), views.sql(query))
    assert served is not None and served.table == "2024"


BANK = {
    "name": "bank",
    "source": {
        "query": "SELECT age, IF(pdays = 999, NULL, pdays) AS pdays, job, subscribed = 'yes' AS subscribed FROM bank WHERE age >= 18",
        "expect": {"job": "job != 'unknown'"},
        "max_quarantined": 0.5,
    },
    "dataset": {
        "features": {"age": "standardize", "pdays": {"encoder": "standardize", "impute": 0}, "job": "vocabulary"},
        "target": {"subscribed": "binary"},
    },
    "task": {"kind": "tabular", "hidden": [8]},
}


@dataclass(frozen=True)
class Bank:
    config: Config
    manifest: Manifest
    weights: dict[str, torch.Tensor]
    model: PyFuncModel


@pytest.fixture(scope="module")
def bank(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Bank:
    """A model without a training, of a version that ETL made of a file whose 999 means that there was no call."""
    folder, random = tmp_path_factory.mktemp("bank"), np.random.default_rng(0)
    rows = pd.DataFrame(
        {
            "age": random.integers(15, 80, 600),
            "pdays": np.where(random.random(600) < 0.8, 999, random.integers(0, 28, 600)),
            "job": random.choice(["admin.", "student", "retired", "unknown"], 600),
            "subscribed": random.choice(["yes", "no"], 600),
        }
    )
    rows.to_csv(folder / "bank.csv", index=False)
    table = {"format": "csv", "path": str(folder / "bank.csv"), "schema": "age int, pdays int, job string, subscribed string"}
    source = BANK["source"] | {"tables": {"bank": table | {"options": {"header": True}}}}
    dataset = BANK["dataset"] | {"path": str(folder / "data")}
    tracking = {"uri": new_store(folder)}
    config = parse(BANK | {"source": source, "dataset": dataset, "tracking": tracking}, "bank.yaml")
    manifest = run(config)
    torch.manual_seed(0)
    weights = build_task(config.task, manifest).model().state_dict()
    client = mlflow.MlflowClient(config.tracking.uri)
    experiment = client.get_experiment_by_name(config.experiment)
    assert experiment
    run_id = client.create_run(experiment.experiment_id).info.run_id
    model = mlflow.pyfunc.load_model(log_model(config, manifest, weights, run_id))
    return Bank(config, manifest, weights, model)


RAW = pd.DataFrame({"age": [40, 41, 17, 42], "pdays": [999, 3, 999, 4], "job": ["student", "admin.", "student", "unknown"]})


def test_p7_a_served_row_is_derived_by_the_model(bank: Bank) -> None:
    derived = pa.table({"age": pa.array([40, 41], pa.int32()), "pdays": pa.array([None, 3], pa.int32()), "job": ["student", "admin."]})
    of_query = Predictor(bank.config.task, bank.manifest.model_copy(update={"served_query": None}), bank.weights)
    expected, predictions = of_query.predict(derived), bank.model.predict(RAW)[:2]
    assert predictions["refused"].isna().all()
    np.testing.assert_allclose(predictions["probability_true"], expected["probability_true"], atol=1e-7)
    kept_predictions = of_query.predict(derived.set_column(1, "pdays", pa.array([999, 3], pa.int32())))
    assert abs(kept_predictions["probability_true"][0] - predictions["probability_true"][0]) > 1e-3, "999 would be another row"


def test_p7_a_served_row_that_etl_would_not_keep_has_a_reason(bank: Bank) -> None:
    predictions = bank.model.predict(RAW)
    assert predictions["prediction"].isna().tolist() == [False, False, True, True]
    assert predictions["refused"].tolist()[2:] == ["WHERE age >= 18", "job"]
    assert bank.manifest.quarantined.keys() == {"job"}


@pytest.mark.parametrize("rows", [RAW[:0], RAW[2:]])
def test_no_row_at_all_may_be_kept(bank: Bank, rows: pd.DataFrame) -> None:
    assert bank.model.predict(rows)["refused"].notna().tolist() == [True] * len(rows)


def test_a_raw_column_that_is_missing_is_named(bank: Bank) -> None:
    with pytest.raises(MlflowException, match=r"missing inputs \['pdays'\]"):
        bank.model.predict(RAW.drop(columns="pdays"))


def test_p7_so_has_one_that_cannot_be_computed() -> None:
    rows, conditions = pa.table({"a": [2, 0, 1, None]}), {"large": '"a" > 1'}
    query = ServedQuery(
        table="t",
        inputs=schema_to_text(rows.schema),
        columns={"half": "CAST(CASE WHEN a = 2 THEN 'x' ELSE '1' END AS INT)"},
        conditions=conditions,
    )
    derived, reasons = Evaluator().apply_query(rows, query)
    assert reasons.to_pylist() == ["half cannot be computed", "large", "large", "large"]
    assert len(derived) == 0


def test_the_model_says_what_it_takes(bank: Bank) -> None:
    model_metadata = bank.model.metadata.metadata
    assert model_metadata["takes"] == "rows of bank, before the query" and model_metadata["query"] == bank.config.source.sql
    assert model_metadata["inputs"] == {"age": "int32", "pdays": "int32", "job": "string"}
    assert bank.model.predict(bank.model.input_example)["refused"].isna().all()


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('/etc/hostname')", "SELECT * FROM '/etc/passwd.csv'", "SELECT * FROM read_csv('http://127.0.0.1/a.csv')",
        "COPY (SELECT 1) TO 'copy.csv'", "ATTACH 'other.db'", "INSTALL httpfs", "LOAD httpfs", "SET enable_external_access = true",
    ],
)  # fmt: skip
def test_duckdb_reaches_no_file_and_no_network(statement: str) -> None:
    with pytest.raises(duckdb.Error, match=r"disabled|locked"):
        open_locked_database().cursor().execute(statement)


def test_an_expression_reads_no_other_table() -> None:
    with pytest.raises(duckdb.Error, match="subquery"):
        Evaluator().columns(pa.table({"a": [1, 2]}), {"out": "(SELECT count(*) FROM raw)"})


def test_a_manifest_of_before_is_one_whose_model_takes_the_query_s_columns(bank: Bank) -> None:
    before = Manifest.model_validate(bank.manifest.model_dump(exclude={"served_query"}))
    assert before.served_query is None
    assert Predictor(bank.config.task, before, bank.weights).inputs.names == ["age", "pdays", "job"]
