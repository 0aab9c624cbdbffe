"""What a draft's SQL makes of texts, in Spark and in a served model, is what the draft takes them for."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pipelines.data.features.auto.column_facts import TypedColumn
from pipelines.data.rowwise.engine import Evaluator
from pipelines.data.rowwise.translate import rowwise, to_duckdb_sql
from pipelines.init.tables.column_types import type_columns
from pipelines.init.tables.date_formats import pattern_form, patterns
from pipelines.init.tables.number_formats import read_numbers

NUMBERS = {
    "thousands": ["800", "2,501", "-1,234,567", "1,5", "12", "1,2345"],
    "Indian thousands": ["12,34,567", "1,234", "7"],
    "dollars": ["$1,234.50", "-$3", "$-4.25", "$", "$5.5.5", "1 2"],
    "points": ["5.914,00", "3,25", "1.234.567", "1.23"],
    "points without decimals": ["800", "5.910", "12.345", "6.5"],
    "blanks": ["1 234", "5\u00a0000\u202f000", "12", "1 2 3", "-3 000"],
    "percent": ["12.3%", "4 %", "-1%", "%"],
    "parentheses": ["(45.10)", "45.10", "$(3.5)", "(2", "2)"],
    "minus behind": ["45-", "3", "2.5-", "-"],
    "scales": ["1.5k", "2M", "300", "4K", "kk", "3B"],
    "codes": ["USD 12.50", "USD3", "-7", "EUR"],
    "euros": ["12,50 €", "3,00 €", "1.000,00 €", "€"],
    "other minus": ["−5.5", "3", "-2"],
    "apostrophes": ["1'234.50", "12", "1’000"],
    "units": ["12 kg", "3.5kg", "1,5 kg", "kg", "12 k"],
    "units without blanks": ["12kg", "3.5kg", "kg", "kg3"],
    "units and thousands": ["1,200 km/h", "-7 km/h", "1.5.5 km/h"],
    "a sign as unit": ["3,5 °C", "12°C", "C"],
    "unit and its plural": ["1 year", "20 years", "2 ears"],
    "a letter as unit": ["5m", "7.5m", "m5", "5mm"],
    "decimal comma": ["0,5", "-3,25", "1.5", ",5"],
    "java's": ["$1", "$2.5", "1d", "0x1p3", "NaN", "inf", "1e400", "\t3"],
}
MOMENTS = {
    "zulu": ["2021-03-01T05:07:09Z", "2021-03-01T05:07:09.123Z"],
    "offsets": ["2021-03-01T05:07:09+02:00", "2021-03-01T23:07:09-0330"],
    "UTC": ["2021-03-01 05:07:09 UTC"],
    "minutes and zone": ["2021-03-01T05:07Z", "2021-03-01T05:07+02:00"],
    "fractions": ["2021-03-01 05:07:09.1", "2021-03-01 05:07:09.123456789"],
    "quarter": ["2020Q1", "2020-Q4", "2020Q5"],
    "quarter first": ["Q1 2020", "Q3-1999", "Q0 2000"],
    "date": ["2021-03-01", "2021-3-1", "2021-02-30"],
}
ODD = ["", " ", "abc", "31/02/2024", "32/01/2024", "2024-13-01", "29.02.2023", "00:00", "24:00", None]


def type_texts(texts: Sequence[str | None]) -> TypedColumn:
    """The column of texts whose first ones decide its form: they stand there so often that odd ones behind them change nothing."""
    (column,) = type_columns({"text": pa.array(texts, pa.large_string())}, "", True)
    return column


def spark_values(spark: SparkSession, texts: Sequence[str | None], column: TypedColumn) -> list[Any]:
    sql = (column.sql or f"try_cast({{0}} AS {column.ddl})").format("text")
    rows = spark.createDataFrame([(number, text) for number, text in enumerate(texts)], "number int, text string")
    return [value.as_py() for value in rows.selectExpr("number", f"{sql} AS value").orderBy("number").toArrow()["value"]]


@pytest.mark.parametrize("texts", [*NUMBERS.values(), *MOMENTS.values()], ids=[*NUMBERS, *MOMENTS])
def test_spark_makes_of_each_form_what_the_draft_does(spark: SparkSession, texts: list[str]) -> None:
    usual = texts[:2] if len(texts) > 1 else texts
    many = usual * (3_000 // len(usual)) + texts + ODD[:3]
    column = type_texts(many)
    assert column.ddl != "string" or column.sql, column
    expected = [value.replace(tzinfo=UTC) if hasattr(value, "tzinfo") else value for value in column.values.to_pylist()]
    assert spark_values(spark, many[-20:], column) == expected[-20:]
    assert None not in expected[:2]


def test_spark_reads_every_pattern_of_dates_as_the_draft_does(spark: SparkSession) -> None:
    samples = {"yyyy": "2024", "yy": "24", "MMMM": "August", "MMM": "Aug", "MM": "08", "M": "8", "dd": "09", "d": "9", "HH": "07", "H": "7"}
    samples |= {"hh": "07", "h": "7", "mm": "05", "ss": "03", "SSS": "250", "a": "PM", "XXX": "+01:00", "Z": "+0100", "EEE": "Fri"}
    expected: list[tuple[str, str | None, datetime | None]] = []
    for pattern in patterns():
        text = fill_pattern(pattern, samples)
        wrong_day = text.replace("Aug", "Feb").replace("08", "02").replace("09", "30")
        texts = [text, wrong_day, text[:-1], text[:-2], f"{text} ", *ODD]
        moments = pattern_form(pattern).moments(pa.array(texts, pa.large_string())).cast(pa.timestamp("us")).to_pylist()
        assert moments[0] is not None
        expected += zip([pattern] * len(texts), texts, moments, strict=True)
    rows = pa.table({"pattern": [row[0] for row in expected], "text": [row[1] for row in expected], "place": range(len(expected))})
    read = "IF(pattern RLIKE '[Hh]', try_to_timestamp(text, pattern), CAST(try_to_date(text, pattern) AS timestamp))"
    without_day = pattern_form("EEE, dd MMM yyyy HH:mm:ss Z").sql.partition(", 'dd")[0].format("text")
    read = f"IF(pattern LIKE 'EEE%', {without_day}, regexp_replace(pattern, '^EEE,? ', '')), {read})"
    values = spark.createDataFrame(rows).selectExpr("place", f"{read} AS value").orderBy("place").toArrow()["value"].to_pylist()
    differing = [(*row, value) for row, value in zip(expected, values, strict=True) if row[2] != (value and value.replace(tzinfo=None))]
    assert differing == []


def test_a_served_model_makes_of_numbers_what_the_draft_does() -> None:
    odd = [" 1", "1d", "0x1", "NaN", "1e400", "1_0", "٣", "5.", ".5", "kk", "1,5", "1.5.5", "\u00a05", "+-3", "1 2", "1e5", *ODD[:3], None]
    for name, texts in NUMBERS.items():
        column = type_texts(texts[:2] * 1_500 + texts)
        (branch,) = rowwise(f"SELECT {column.sql.format('text')} AS value FROM t", {"t": ["text"]})
        reading = read_numbers(pa.array(texts[:2] * 1_500 + texts, pa.large_string()))
        assert reading
        values, errors = Evaluator().columns(
            pa.table({"text": pa.array(texts + odd, pa.string())}), {"value": to_duckdb_sql(branch.columns["value"])}
        )
        assert values["value"].to_pylist() == reading.form.numbers(pa.array(texts + odd, pa.large_string())).to_pylist(), name
        assert set(errors) == {None}


def fill_pattern(pattern: str, samples: dict[str, str]) -> str:
    """A moment written so."""
    parts = re.findall("'[^']*'|" + "|".join(sorted(samples, key=len, reverse=True)) + "|.", pattern)
    return "".join(samples.get(part, part.strip("'")) for part in parts)
