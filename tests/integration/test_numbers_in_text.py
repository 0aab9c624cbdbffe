"""Numbers in raw text are defined by this project, alike in CSV, JSON and the names of folders."""

import json
import math
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import DecimalType, DoubleType, IntegerType
from tables import read_tables, source, write

from pipelines.data.sources.text.type_checks import pattern
from pipelines.etl.plan_checks import text_cast_notes
from pipelines.runtime.compat.spark import query_execution

NUMBERS = ("0", "-1", "+7", "1.5", "-.5", "5.", "1e3", "1.5E-3", "+2e+2", "007", "1e-400")
NO_NUMBERS = (
    *("12D", "7f", "1d", "0x1p4", "0x10", "٣", "١٫٥", "1,234", "1_000", "NaN", "nan", "Infinity", "-Infinity", "inf", "+INF", "1e400"),
    *("1e", "e5", ".", "+", "--1", "1.2.3", "1 2", "one", "½", "１２"),
)
WHOLE, NOT_WHOLE = ("0", "-1", "+7", "007", "2147483647"), ("12D", "٣", "１", "1.5", "1e3", "1.", "2147483648", "0x10", " 1", "1 ", "+", "")
SCHEMA = "at int, d double, f float, n decimal(30,4), i int, s string"


def test_the_expressions_of_numbers() -> None:
    for text in NUMBERS:
        assert re.search(pattern(DoubleType()).replace(r"\z", r"\Z"), f" {text}\t") and re.search(
            pattern(DecimalType()).replace(r"\z", r"\Z"), text
        )
    for text in NO_NUMBERS:
        assert text == "1e400" or not re.search(pattern(DoubleType()).replace(r"\z", r"\Z"), text)
    for text in NOT_WHOLE:
        assert text == "2147483648" or not re.search(pattern(IntegerType()).replace(r"\z", r"\Z"), text)


def test_csv_takes_numbers_and_refuses_what_java_takes_besides(spark: SparkSession, tmp_path: Path) -> None:
    lines, reasons = [], {}
    for text in NUMBERS:
        lines.append(f"{len(lines)},{text},{text},{text},1,{text}")
    for text in WHOLE:
        lines.append(f"{len(lines)},1,1,1,{text},{text}")
    for text in NO_NUMBERS:
        for place, name in enumerate(("d is not double", "f is not float", "n is not decimal(30,4)")):
            values = ["1", "1", "1"]
            values[place] = f'"{text}"'
            reasons[len(lines)] = name
            lines.append(f'{len(lines)},{",".join(values)},1,"{text}"')
    for text in NOT_WHOLE:
        reasons[len(lines)] = "i is not int"
        lines.append(f'{len(lines)},1,1,1,"{text}",x' if text else f'{len(lines)},1,1,1,x,"{text}"')
    path = write(tmp_path, "a.csv", "\n".join(lines) + "\n")
    tables = read_tables(spark, source(t={"format": "csv", "path": path, "schema": SCHEMA}))
    assert tables.malformed is not None
    reason_by_number = {int(record.split(",")[0]): reason.removeprefix("t: ") for reason, record, _ in tables.malformed.collect()}
    assert reason_by_number == reasons
    rows = {row["at"]: row for row in spark.table("t").collect()}
    for at, text in enumerate(NUMBERS):
        assert (rows[at].d, rows[at].s) == (float(text), text) and rows[at].f == pytest.approx(float(text), rel=1e-6)
        assert float(rows[at].n) == pytest.approx(float(text), abs=1e-4)
    assert [rows[len(NUMBERS) + at].i for at in range(len(WHOLE))] == [int(text) for text in WHOLE]


def test_infinity_and_nan_are_numbers_where_they_are_named(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "NaN,1\nInfinity,2\n-inf,3\n 4\t,4\n1e400,5\nnan,6\n7,inf\n")
    options = {"nanValue": "NaN", "positiveInf": "Infinity", "negativeInf": "-inf"}
    tables = read_tables(spark, source(t={"format": "csv", "path": path, "schema": "d double, i int", "options": options}))
    values = [row.d for row in spark.table("t").orderBy("i").collect()]
    assert math.isnan(values[0]) and values[1:] == [math.inf, -math.inf, 4.0] and tables.handed_on == {"t": 4}


def test_a_locale_that_is_named_writes_decimals_its_way(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "1.234,5;2\n")
    table = {"format": "csv", "path": path, "schema": "n decimal(9,2), i int", "options": {"sep": ";", "locale": "de-DE"}}
    read_tables(spark, source(t=table))
    assert [(float(row.n), row.i) for row in spark.table("t").collect()] == [(1234.5, 2)]


def test_json_has_json_s_numbers_and_decimals_in_quotes_as_in_csv(spark: SparkSession, tmp_path: Path) -> None:
    good = [
        '{"d": 1e3, "n": 1.50, "a": [{"n": "2.5", "f": 1e38}], "m": {"x": "+7"}}',
        '{"d": null, "n": null, "a": null}',
        '{"a": [null], "s": "1,234"}',
    ]
    bad = {
        '{"d": 1e400}': "d is not double",
        '{"a": [{"f": 1}, {"f": 1e39}]}': "a is not array<struct<n:decimal(4,1),f:float>>",
        f'{{"a": [{{"f": 1{"0" * 33}e9}}]}}': "a is not array<struct<n:decimal(4,1),f:float>>",
        '{"d": "12"}': "not a JSON object of these columns' types",
        '{"n": "1,234"}': "n is not decimal(9,2)",
        '{"n": "٣"}': "n is not decimal(9,2)",
        r'{"n": "1\u0663"}': "n is not decimal(9,2)",
        '{"d": 1, "a": [{"n": 1}, {"n": ",5"}]}': "a is not array<struct<n:decimal(4,1),f:float>>",
        '{"m": {"é": "1e3,"}}': "m is not map<string,decimal(5,0)>",
    }
    path = write(tmp_path, "a.json", "\n".join([*good, *bad]))
    schema = "d double, n decimal(9,2), a array<struct<n: decimal(4,1), f: float>>, m map<string, decimal(5,0)>, s string"
    tables = read_tables(spark, source(t={"format": "json", "path": path, "schema": schema}))
    assert tables.malformed is not None
    assert {record: reason.removeprefix("t: ") for reason, record, _ in tables.malformed.collect()} == bad
    first = spark.table("t").where("d = 1000").first()
    assert first is not None and json.loads(json.dumps(first.asDict(True), default=str)) == {
        "d": 1000.0, "n": "1.50", "a": [{"n": "2.5", "f": 9.999999680285692e37}], "m": {"x": "7"}, "s": None
    }  # fmt: skip


def test_a_column_that_is_declared_as_a_number_needs_no_cast_in_the_query(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "12D,1\n1,1\n")
    rows, notes = {}, {}
    for kind in ("string", "double"):
        read_tables(spark, source(t={"format": "csv", "path": path, "schema": f"a {kind}, n decimal(9,2)"}))
        query = spark.sql("SELECT CAST(a AS double) AS a FROM t")
        rows[kind], notes[kind] = sorted(row.a for row in query.collect()), text_cast_notes(query_execution(query).analyzed())
    assert rows == {"string": [1.0, 12.0], "double": [1.0]}
    assert len(notes["string"]) == 1 and notes["double"] == ()
