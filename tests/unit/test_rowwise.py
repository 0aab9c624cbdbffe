"""Queries that work row by row: as expressions of raw columns, the rows on which engines are compared, and what fails. No Spark."""

import errno
import logging
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from importlib.metadata import version
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from pipelines.data.rowwise.engine import Evaluator
from pipelines.data.rowwise.translate import UntranslatableError, carry_column, rowwise, source_columns, to_duckdb_sql
from pipelines.data.versions.manifest import Manifest, ServedQuery
from pipelines.data.versions.schema import schema_to_text
from pipelines.errors import SourceError
from pipelines.etl import served_query
from pipelines.etl import served_query as served
from pipelines.etl.served_query import hostile_rows
from pipelines.serving.model.logged_model import drop_unproven_query


def test_a_condition_may_begin_with_the_word_of_a_statement() -> None:
    (branch,) = rowwise("SELECT raw + 1 AS load FROM t", {"t": ["raw"]})
    assert to_duckdb_sql(branch.condition("load < 1e9")) == '("raw" + 1) < 1e9'
    with pytest.raises(UntranslatableError, match="no condition"):
        branch.condition("load, load")


def test_conditions_in_the_same_words_are_all_asked() -> None:
    query = "SELECT * FROM (SELECT y AS x FROM (SELECT * FROM t WHERE x > 0) WHERE x > 0) WHERE x > 0"
    (branch,) = rowwise(query, {"t": ["x", "y"]})
    texts = {name: to_duckdb_sql(condition) for name, condition in branch.conditions.items()}
    assert texts == {"WHERE x > 0": '"x" > 0', "WHERE x > 0 (2)": '"x" > 0', "WHERE x > 0 (3)": '"y" > 0'}
    rows = pa.table({"x": [1, 0, 1], "y": [1, 1, 0]})
    assert Evaluator().refusal_reasons(rows, texts).to_pylist() == [None, "WHERE x > 0", "WHERE x > 0 (3)"]


@pytest.mark.parametrize(("precision", "scale"), [(8, 2), (30, 4), (38, 18), (38, 38), (38, 0)])
def test_hostile_decimals_have_all_digits_of_their_type(precision: int, scale: int) -> None:
    kind = pa.decimal128(precision, scale)
    rows = hostile_rows(pa.table({"m": pa.array([Decimal(0), None], kind)}), ["m"], {"1.25", "12345678901234567890", "1e-9"})
    decimals = set(rows["m"].to_pylist())
    assert rows.schema.field("m").type == kind
    assert {Decimal(f"{sign}{'9' * precision}e-{scale}") for sign in ("", "-")} <= decimals
    if precision - scale >= 20:
        assert Decimal(f"12345678901234567890.{'0' * (scale - 1)}1" if scale else "12345678901234567891") in decimals


def test_a_text_that_is_no_day_leaves_the_other_days() -> None:
    rows = hostile_rows(pa.table({"d": pa.array([date(2000, 1, 1)], pa.date32())}), ["d"], {"2026-02-29", "2026-03-01"})
    assert date(2026, 2, 28) in rows["d"].to_pylist()


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    def fail(*_: Any) -> None:
        raise request.param

    monkeypatch.setattr(served, "_translate", lambda *_: object())
    monkeypatch.setattr(served, "prove", fail)
    yield
    request.param.__traceback__ = None  # pytest keeps it to the end, and with its frames DuckDB, whose library then says so for a page


@pytest.mark.parametrize(
    "failing",
    [
        PySparkException("ExecutorLostFailure (executor 3 exited caused by one of the running tasks)"),
        PySparkException("java.io.IOException: No space left on device"),
        PySparkException("[SPARK_JOB_CANCELLED] Job 7 cancelled", "SPARK_JOB_CANCELLED"),
        PySparkException("[FAILED_READ_FILE.NO_HINT] Encountered error while reading file t.parquet", "FAILED_READ_FILE.NO_HINT"),
        Py4JNetworkError("Answer from Java side is empty"),
        ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
        OSError(errno.ENOSPC, "No space left on device"),
        SourceError("t: changed"),
    ],
    indirect=True,
    ids=lambda error: f"{type(error).__name__}: {error}"[:60],
)
@pytest.mark.usefixtures("failing")
def test_what_may_go_well_the_next_time_makes_no_version(request: pytest.FixtureRequest) -> None:
    with pytest.raises(type(request.node.callspec.params["failing"])):
        served.translate_query(*[None] * 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("failing", "level", "reason"),
    [
        (duckdb.BinderException("Binder Error: no such function\nLINE 1"), logging.DEBUG, "served: Binder Error: no such function"),
        (UntranslatableError("UPPER is another value"), logging.DEBUG, "served: UPPER is another value"),
        (PySparkException("[ARITHMETIC_OVERFLOW] integer overflow"), logging.WARNING, "PySparkException: [ARITHMETIC_OVERFLOW]"),
        (TypeError("no such thing"), logging.WARNING, "served: TypeError: no such thing"),
    ],
    indirect=["failing"],
)
@pytest.mark.usefixtures("failing")
def test_a_query_that_cannot_be_served_is_said_and_a_defect_is_a_warning(caplog: pytest.LogCaptureFixture, level: int, reason: str) -> None:
    with caplog.at_level("DEBUG", "pipelines"):
        assert served.translate_query(*[None] * 3) is None  # type: ignore[arg-type]
    records = [record for record in caplog.records if record.name == served.__name__]  # a thread of an earlier test may log too
    assert [(record.levelno, reason in record.message) for record in records] == [(level, True)]


def test_the_database_is_closed_also_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    databases = []

    def fail(evaluator: Evaluator, *_: Any) -> None:
        databases.append(evaluator)
        raise UntranslatableError("another value")

    monkeypatch.setattr(served_query, "_prove", fail)
    with pytest.raises(UntranslatableError, match="another value"):
        served_query.prove(*[None] * 3)  # type: ignore[arg-type]
    with pytest.raises(duckdb.ConnectionException):
        databases[0].types(pa.schema({"x": pa.int64()}), ['"x" + 1'])


def test_a_model_takes_raw_rows_only_with_the_duckdb_that_was_compared(caplog: pytest.LogCaptureFixture) -> None:
    served, installed = (
        ServedQuery(table="t", inputs=schema_to_text(pa.schema({"x": pa.int64()})), columns={"x": '"x" + 1'}, conditions={}),
        version("duckdb"),
    )
    manifest = Manifest(
        name="t", version="", digest="", attempt="", encoders={}, splits={}, served_query=served, versions={"duckdb": installed}
    )
    assert drop_unproven_query(manifest).served_query == served
    assert not caplog.records
    assert drop_unproven_query(manifest.model_copy(update={"versions": {"duckdb": "0.1"}})).served_query is None
    (warning,) = caplog.records
    assert "DuckDB 0.1" in warning.message and f"DuckDB {installed} is installed here" in warning.message


def test_the_machine_s_time_zone_is_not_that_of_a_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/St_Johns")
    rows = pa.table({"at": pa.array([1_700_000_000], pa.timestamp("s", "UTC"))})
    columns, failed = Evaluator().columns(rows, {"text": 'CAST("at" AS VARCHAR)'})
    assert (columns["text"].to_pylist(), failed) == (["2023-11-14 22:13:20+00"], [None])


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT a, b + 1 AS c, startswith(label, 'x') AS rich FROM t WHERE d > 0", {"a", "b", "label", "d"}),
        ("SELECT * EXCEPT (label) FROM (SELECT *, label = 'x' AS y FROM t)", {"label"}),
        ("SELECT * FROM t", set()),
        ("SELECT FROM WHERE (", set()),
    ],
)
def test_the_columns_that_a_query_reads_by_name(sql: str, names: set[str]) -> None:
    assert source_columns(sql) == names


@pytest.mark.parametrize(
    ("sql", "carried"),
    [
        ("SELECT *, a * b AS c FROM t WHERE x", "SELECT *, a * b AS c FROM t WHERE x"),
        ("SELECT a * b AS c FROM t", "SELECT `__row`, a * b AS c FROM t"),
        ("select t.* EXCEPT (y), f(1) from t", "select t.* EXCEPT (y), f(1) from t"),
        ("WITH c AS (SELECT a FROM t) SELECT a c FROM c", "WITH c AS (SELECT `__row`, a FROM t) SELECT `__row`, a c FROM c"),
        ("SELECT 'ä, *' AS q FROM t UNION ALL SELECT * FROM u", "SELECT `__row`, 'ä, *' AS q FROM t UNION ALL SELECT * FROM u"),
        ("SELECT x\nFROM (SELECT f(y, 'SELECT') x FROM t)", "SELECT `__row`, x\nFROM (SELECT `__row`, f(y, 'SELECT') x FROM t)"),
    ],
)  # fmt: skip
def test_a_column_is_carried_through_a_query_that_stays_as_it_is_written(sql: str, carried: str) -> None:
    assert carry_column(sql, "__row") == carried
