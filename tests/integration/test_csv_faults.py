"""Every kind of malformed CSV record, under every two options together, is refused for its own reason."""

import random
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tables import raw_table

from pipelines.data.sources.text.csv import Csv
from pipelines.data.sources.text.parsed import LINE, PROBLEM, RANGE, RECORD
from pipelines.data.sources.text.records import QUOTES, cut
from pipelines.data.sources.text.text_table import examine

SCHEMA = "a int, b string, c double"
OPTIONS: dict[str, tuple[Any, ...]] = {
    "ignoreLeadingWhiteSpace": (None, True),
    "ignoreTrailingWhiteSpace": (None, True),
    "sep": (",", ";", "\\t", "||", "␂"),
    "quote": (None, "'", ""),
    "escape": (None, "\\"),
    "nullValue": (None, "?", "1"),
    "emptyValue": (None, "-"),
    "nanValue": (None, "x"),
    "maxColumns": (None, 3),
    "maxCharsPerColumn": (None, 6),
    "multiLine": (None, True),
    "comment": (None, "#"),
}


def pairwise(options: dict[str, tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    """Few choices of all options, among which every two values of two options occur together."""
    chance = random.Random(1)
    remaining = {
        ((option, first), (other, second))
        for option, other in combinations(options, 2)
        for first in options[option]
        for second in options[other]
    }
    while remaining:
        tries = [{name: chance.choice(values) for name, values in options.items()} for _ in range(60)]
        best = max(tries, key=lambda choice: len(remaining & set(combinations(choice.items(), 2))))
        remaining -= set(combinations(best.items(), 2))
        yield {name: value for name, value in best.items() if value is not None}


def records(options: dict[str, Any]) -> dict[str, str]:
    """The reason of each record, empty if it is a row."""
    separator, quote = options["sep"].replace("\\t", "\t"), options.get("quote", '"')
    faults = {
        ("7", "x", "0.5"): "",
        ("7", "x"): "fewer than 3 columns",
        ("7",): f"one column in place of 3: not separated by {options['sep']!r}",
        ("7", "x", "0.5", ""): "more than 3 columns",
        ("7", "x", "0.5", "8"): "more than 3 columns",
        ("7", "x", "0.5", "8", "9", "10"): "more than 3 columns",
        ("7", *["x"] * 140_000): "more than 3 columns",
        ("z", "x", "0.5"): "a is not int",
        ("7", "x", "z"): "c is not double",
    }
    if "maxCharsPerColumn" in options:
        faults["7", "more than six", "0.5"] = "a value of more than 6 characters, which maxCharsPerColumn allows"
    if quote:
        faults["7", f"x{quote}y{quote}x", "0.5"] = QUOTES
    reasons = {separator.join(values): reason for values, reason in faults.items()}
    if "ignoreLeadingWhiteSpace" in options and "ignoreTrailingWhiteSpace" in options:
        blanks = {separator.join(f" {value} " for value in values): reason for values, reason in faults.items() if reason != QUOTES}
        reasons |= {record: reason for record, reason in blanks.items() if "more" not in record}
    return reasons


def parse_records(spark: SparkSession, options: dict[str, Any], number: int) -> DataFrame:
    table = raw_table({"format": "csv", "path": "nowhere", "schema": SCHEMA, "options": options})
    assert isinstance(table, Csv)
    text = "\n".join(records(options)).encode()
    batches = [examine(table.examiner, table.looks, batch) for batch in cut([text], table.dialect(), "nowhere")]
    cut_records = spark.createDataFrame(pa.Table.from_batches(batches).rename_columns([RECORD, PROBLEM, LINE, *table.looks]))
    parsed = table.parse(cut_records.withColumn(RANGE, F.lit(0)))
    return parsed.select(F.lit(number).alias("number"), F.coalesce(RECORD, F.lit("a row")).alias("record"), F.coalesce(PROBLEM, F.lit("")))


@pytest.mark.full
def test_every_kind_of_malformed_record_has_its_reason_under_every_two_options(spark: SparkSession, tmp_path: Path) -> None:
    choices = list(pairwise(OPTIONS))
    frames = [parse_records(spark, options, number) for number, options in enumerate(choices)]
    joined = frames[0]
    for frame in frames[1:]:
        joined = joined.unionAll(frame)
    got: list[dict[str, str]] = [{} for _ in choices]
    rows = [0] * len(choices)
    for number, record, problem in joined.collect():
        rows[number] += not problem
        if problem:
            got[number][record] = problem
    for number, options in enumerate(choices):
        expected = records(options)
        assert got[number] == {record: reason for record, reason in expected.items() if reason}, options
        assert rows[number] == list(expected.values()).count(""), options


def test_a_json_record_may_end_in_a_comment(spark: SparkSession, tmp_path: Path) -> None:
    from tables import read_tables, source, write

    path = write(tmp_path, "a.json", '{"a": 1} // the first\n{"a": 2} /* the second */\n{"a": 3} /* never closed\n')
    table = {"format": "json", "path": path, "schema": "a int", "options": {"allowComments": True}}
    assert read_tables(spark, source(t=table)).handed_on == {"t": 2}


@pytest.mark.full
def test_a_record_of_hundreds_of_columns_has_the_fault_of_the_first_that_misfits(spark: SparkSession, tmp_path: Path) -> None:
    """An expression for each column, one in the other, overflowed Java's stack at 600."""
    kinds = ("double", "int", "date", "decimal(8,2)", "string", "float")
    columns = {f"c{number}": kinds[number % len(kinds)] for number in range(700)}
    values = {"double": "0.5", "int": "7", "date": "2024-05-06", "decimal(8,2)": "1.25", "string": "x", "float": "1e3"}
    record = [values[kind] for kind in columns.values()]

    def alter_record(**changes: str) -> str:
        return ",".join(changes.get(name, value) for name, value in zip(columns, record, strict=True))

    faults = {
        alter_record(): None,
        alter_record(c601="x", c600="y"): "c600 is not double",
        alter_record(c602="May", c699="x"): "c602 is not date",
        alter_record(c5="12D"): "c5 is not float",
        alter_record(c3="x", c698="2024-13-01"): "c3 is not decimal(8,2)",
        alter_record() + ",1": "more than 700 columns",
        ",".join(record[:-1]): "fewer than 700 columns",
    }
    file = tmp_path / "wide.csv"
    file.write_text("\n".join(faults) + "\n")
    settings = {"format": "csv", "path": str(file), "schema": ", ".join(f"{name} {kind}" for name, kind in columns.items())}
    rows = raw_table(settings).rows(spark).rows.select("c1", PROBLEM, LINE).sort(LINE).collect()
    assert [row[PROBLEM] for row in rows] == list(faults.values())
    assert [row["c1"] for row in rows if row[PROBLEM] is None] == [7]
