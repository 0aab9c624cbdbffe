"""What drafts take the texts of a column for: numbers with marks, moments of many forms, classes of several spellings."""

import csv
import json
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlglot
from drafts import draft_config

from pipelines.commands import COMMANDS
from pipelines.config.load import parse
from pipelines.config.reading import from_yaml
from pipelines.data.features.auto.column_facts import TypedColumn
from pipelines.errors import ConfigError, SourceError
from pipelines.init.draft import Draft, Request, yaml_text
from pipelines.init.tables.column_types import type_columns
from pipelines.init.tables.date_formats import pattern_form
from pipelines.init.tables.dialect import TableDialect, first_records

ROWS = 400
Values = Sequence[Any]


def type_texts(*columns: Sequence[str | None]) -> list[TypedColumn]:
    """The columns of one table, a, b and so on."""
    texts = {chr(ord("a") + place): pa.array(texts, pa.large_string()) for place, texts in enumerate(columns)}
    return type_columns(texts, "", True)


def query_values(query: str, texts: Sequence[Any]) -> list[Any]:
    """What a query over a table t of one column y gives, by DuckDB."""
    t = pa.table({"y": texts, "other": texts})
    rows = duckdb.connect().register("t", t).sql(sqlglot.transpile(query, read="databricks", write="duckdb")[0])
    return [row[0] for row in rows.fetchall()]


def draft(folder: Path, columns: Mapping[str, Values], target: str = "y") -> Draft:
    """The draft of a table, which is a valid config."""
    path = folder / "t.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([list(columns), *zip(*columns.values(), strict=True)])
    result = draft_config(Request(str(path), target, "toy"))
    parse(from_yaml(yaml_text(result)), "toy.yaml")
    return result


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def numbers(random: np.random.Generator) -> dict[str, Values]:
    values = random.normal(size=ROWS).round(3)
    return {"a": values, "y": values * 2 + random.normal(size=ROWS).round(2)}


@pytest.mark.parametrize(("wrong", "are"), [(["x"], "1 of 1,000 values is none"), (["x", "z"], "2 of 1,000 values are none")])
def test_numbers_with_a_few_texts_are_said(wrong: Sequence[str], are: str) -> None:
    (column,) = type_texts([*(f"{number / 7:.3f}" for number in range(1_000 - len(wrong))), *wrong])
    assert column.ddl == "double" and column.doubt == f"a is a number, though {are}, such as 'x'; records with them are refused"


@pytest.mark.parametrize(
    ("texts", "values", "assumption"),
    [
        (["800", "2,501", "-1,007"], [800, 2501, -1007], "a is a number without thousands commas"),
        (["$1,234.50", "-$3"], [1234.5, -3], "a is a number without $ and thousands commas"),
        (["5.914,00", "3,25"], [5914, 3.25], "a is a number without thousands points, with a decimal comma"),
        (["1 234", "5\u00a0000", "6\u202f000\u202f000"], [1234, 5000, 6e6], "a is a number without blanks between thousands"),
        (["1.250,50 €", "3,00 €"], [1250.5, 3], "a is a number without € and thousands points, with a decimal comma"),
        (["12.3%", "4 %"], [12.3, 4], "a is a number without %"),
        (["(45.10)", "3"], [-45.1, 3], "a is a number, negative in parentheses"),
        (["45-", "3"], [-45, 3], "a is a number, negative before a minus"),
        (["1.5k", "2M", "7"], [1500, 2e6, 7], "a is a number, k for thousands, M for millions"),
        (["USD 12.50", "USD 3"], [12.5, 3], "a is a number without USD"),
        (["1'234.50", "9"], [1234.5, 9], "a is a number without apostrophes"),
        (["0,123", "2,500"], [0.123, 2.5], "a is a number, with a decimal comma"),
        (["800", "5.910"], [800, 5910], "a is a number without thousands points, with a decimal comma"),
        (["12 kg", "3.5kg"], [12, 3.5], "a is a number without kg"),
        (["1,200 km/h", "-7 km/h"], [1200, -7], "a is a number without km/h and thousands commas"),
        (["3,5 °C", "12 °C"], [3.5, 12], "a is a number without °C, with a decimal comma"),
        (["1 year", "20 years"], [1, 20], "a is a number without year and years"),
        (["5m", "7m"], [5, 7], "a is a number without m"),
    ],
)
def test_numbers_have_marks_that_are_taken_off_and_said(texts: list[str], values: list[float], assumption: str) -> None:
    (column,) = type_texts(texts)
    assert column.values.to_pylist() == values and column.doubt == assumption


@pytest.mark.parametrize(
    "texts",
    [["0123", "1,234"], ["12D", "13D"], ["123 456 789", "223 456 780"], ["10.0.0.1", "192.168.1.1"], ["1-2", "3-4"], ["12.50 €", "3,00 €"]],
)
def test_codes_and_mixtures_stay_texts(texts: list[str]) -> None:
    assert type_texts(texts)[0].values.to_pylist() == texts


def test_numbers_with_several_units_and_dates_in_two_orders_are_texts_and_told() -> None:
    (column,) = type_texts(["12 kg", "3 lb"] * 9)
    assert column.ddl == "string" and column.doubt == "a is text, since different words stand behind its numbers: kg, lb"
    for addresses in (["007 kg", "008 kg"], ["1 Main", "2 High", "3 Mill", "4 Oak", "5 Elm", "6 Ash"]):
        assert type_texts(addresses)[0].doubt == "" and type_texts(addresses)[0].ddl == "string"
    (column,) = type_texts(["*", *["12 kg", "3 kg"] * 99])
    assert column.doubt == "a is a number without kg; 1 of the 199 values of a, such as '*', is none and becomes NULL"
    for day_first, month_first in (("13/02/2024", "02/13/2024"), ("13.2.24 05:07", "2.13.24 05:07")):
        (column,) = type_texts([day_first, month_first] * 9)
        doubt = f"a is text, since its dates have the day first, as {day_first}, and the month first, as {month_first}"
        assert column.ddl == "string" and column.doubt == doubt


def test_three_digits_behind_every_comma_are_a_doubt_that_other_columns_decide() -> None:
    open_texts = ["2,501", "3,200"]
    assert type_texts(open_texts)[0].values.to_pylist() == [2501, 3200]
    assert "as three digits stand behind every comma; otherwise write try_cast(replace(a, ',', '.')" in type_texts(open_texts)[0].doubt
    assert type_texts(["2,501", "1877"])[0].values.to_pylist() == [2501, 1877]
    assert type_texts(open_texts, ["1,5", "2"])[0].values.to_pylist() == [2.501, 3.2]
    assert type_texts(open_texts, ["1.5", "2"])[0].values.to_pylist() == [2501, 3200]
    assert type_texts(["5.914", "1.200"], ["1,5", "2"])[0].values.to_pylist() == [5914, 1200]
    assert type_texts(["5.914", "1.200"])[0].ddl == "double"


def test_one_text_among_many_numbers_is_null_and_counted() -> None:
    (column,) = type_texts(["$2.50", "abc", *["$3.00"] * 400])
    assert column.values[1].as_py() is None and column.doubt == (
        "a is a number without $; 1 of the 402 values of a, such as 'abc', is none and becomes NULL"
    )
    (column,) = type_texts(["'2021-03-01", *[f"2021-03-{day:02}" for day in range(1, 31)] * 5])
    assert column.values[0].as_py() is None and column.doubt == (
        '1 of the 151 values of a, such as "\'2021-03-01", is none and becomes NULL'
    )
    (column,) = type_texts(["'2.5", *["2.5"] * 30])
    assert column.ddl == "string" and column.doubt == (
        'a is text, since 1 of 31 values is no number, such as "\'2.5"; for numbers, write try_cast(a AS double) in source.query, which '
        "makes all others NULL"
    )


MOMENTS = {
    "2021-03-01T05:07:09Z": datetime(2021, 3, 1, 5, 7, 9),
    "2021-03-01T05:07:09.123Z": datetime(2021, 3, 1, 5, 7, 9, 123_000),
    "2021-03-01T05:07:09+02:00": datetime(2021, 3, 1, 3, 7, 9),
    "2021-03-01 05:07:09 UTC": datetime(2021, 3, 1, 5, 7, 9),
    "2021/03/01 05:07": datetime(2021, 3, 1, 5, 7),
    "13/03/2021 05:07": datetime(2021, 3, 13, 5, 7),
    "01.03.2021 05:07": datetime(2021, 3, 1, 5, 7),
    "03/13/2021 05:07 PM": datetime(2021, 3, 13, 17, 7),
    "3/13/2021 5:07": datetime(2021, 3, 13, 5, 7),
    "13 Mar 2021": date(2021, 3, 13),
    "march 13, 2021": date(2021, 3, 13),
    "13-Mar-21": date(2021, 3, 13),
    "Mar-1-2021": date(2021, 3, 1),
    "MAR-13-2021 05:07": datetime(2021, 3, 13, 5, 7),
    "1-Mar-2021": date(2021, 3, 1),
    "Mar 1, 2021": date(2021, 3, 1),
    "13/Mar/2021": date(2021, 3, 13),
    "2021-Mar-13": date(2021, 3, 13),
    "2021 Mar 1": date(2021, 3, 1),
    "2021-03": date(2021, 3, 1),
    "Mar 2021": date(2021, 3, 1),
    "2020Q2": date(2020, 4, 1),
    "2020-Q4": date(2020, 10, 1),
    "20210301T050709": datetime(2021, 3, 1, 5, 7, 9),
}


@pytest.mark.parametrize("text", MOMENTS)
def test_moments_have_many_forms(text: str) -> None:
    (column,) = type_texts([text, None])
    assert column.values.to_pylist() == [MOMENTS[text], None]
    assert ("a is a date written as a quarter" in column.doubt) == ("Q" in text)
    assert ("a is in UTC, to which its offsets are turned" in column.doubt) == text.endswith(("Z", "+02:00", "UTC"))


def test_the_order_of_day_and_month_is_what_the_values_or_other_columns_or_the_rows_say() -> None:
    open_days = ["06/02/2024", "05/03/2024", "06/03/2024"]
    (alone,) = type_texts(open_days)
    assert alone.values[0].as_py() == date(2024, 2, 6)
    assert "dd/MM/yyyy or MM/dd/yyyy: 06/02/2024 is taken for 6 February 2024; if it is 2 June 2024, write" in alone.doubt
    remedy = re.search(r"if it is 2 June 2024, write try_to_date\(a, '(.*)'\) in source.query", alone.doubt)
    assert remedy and pattern_form(remedy[1]).moments(pa.array(open_days)).to_pylist()[0] == date(2024, 6, 2)
    assert type_texts(open_days, ["05/25/2023", "01/01/2023", "01/01/2023"])[0].values[0].as_py() == date(2024, 6, 2)
    in_order_of_months = [f"{month:02}/{day:02}/2024" for month in range(1, 7) for day in (3, 9)]
    (ordered,) = type_texts(in_order_of_months)
    assert ordered.values[0].as_py() == date(2024, 1, 3) and "as its rows are then in order of time" in ordered.doubt
    assert type_texts(["03/04/2024 05:07 AM"])[0].values[0].as_py() == datetime(2024, 3, 4, 5, 7)


def test_numbers_that_stand_for_moments_are_some(numbers: dict[str, Values], random: np.random.Generator, tmp_path: Path) -> None:
    seconds = 1_600_000_000 + np.cumsum(random.integers(1, 1_000, ROWS))
    table = {
        "at": random.permutation(seconds) * 1000,
        "s": seconds,
        "other": random.permutation(seconds),
        "d": [20200101 + n % 28 for n in range(ROWS)],
    }
    result = draft(tmp_path, {"created_at" if name == "at" else name: values for name, values in table.items()} | numbers)
    query, assumptions = result.sections["source"]["query"], " ".join(result.assumptions)
    assert "timestamp_millis(created_at) AS created_at" in query and "timestamp_seconds(s) AS s" in query
    assert (
        "try_to_date(CAST(d AS string), 'yyyyMMdd') AS d" in query
        and "for a time in seconds since 1970, write timestamp_seconds(other)" in assumptions
    )
    assert result.sections["dataset"]["split"]["time"] == "s"


def test_a_moment_in_several_columns_is_one(numbers: dict[str, Values], tmp_path: Path) -> None:
    hours = np.datetime64("2021-01-30T00") + np.arange(ROWS)
    parts = {part: [int(str(hour)[start:end]) for hour in hours] for part, start, end in
             (("year", 0, 4), ("month", 5, 7), ("day", 8, 10), ("hour", 11, 13))}  # fmt: skip
    result = draft(tmp_path, parts | numbers)
    assert "try_make_timestamp(year, month, day, hour, 0, 0) AS time" in result.sections["source"]["query"]
    assert result.sections["dataset"]["split"] == {"time": "time", "validation": "2021-02-12 08:00:00", "test": "2021-02-14 00:00:00"}
    assert "time_dayofweek" in result.sections["dataset"]["features"] and "time_hour" not in result.sections["dataset"]["features"]


@pytest.mark.parametrize(("day", "time"), [("%Y-%m-%d", "%H:%M"), ("%d.%m.%Y", "%H:%M:%S"), ("%m/%d/%Y", "%H.%M.%S")])
def test_a_date_and_a_time_of_day_are_one_moment(numbers: dict[str, Values], tmp_path: Path, day: str, time: str) -> None:
    hours = [moment.item() for moment in np.datetime64("2021-01-30T00:30") + np.arange(ROWS) * np.timedelta64(1, "h")]
    columns = {"Date": [f"{hour:{day}}" for hour in hours], "Time": [f"{hour:{time}}" for hour in hours]}
    result = draft(tmp_path, columns | numbers)
    assert result.sections["dataset"]["split"] == {"time": "Date", "validation": "2021-02-12 08:30:00", "test": "2021-02-14 00:30:00"}
    assert "Date_hour" in result.sections["dataset"]["features"] and "Time" not in result.sections["dataset"]["features"]
    assert "Date and Time are one moment" in " ".join(result.assumptions)


def test_texts_of_typed_files_have_forms_too_and_digits_stay_texts(numbers: dict[str, Values], tmp_path: Path) -> None:
    days = [f"{np.datetime64('2021-01-01') + number % 90}" for number in range(ROWS)]
    prices = [f"${1000 + number:,}.50" for number in range(ROWS)]
    table = {"day": days, "price": prices, "zip": [f"{number % 9 + 100}" for number in range(ROWS)], **numbers}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    result = draft_config(Request(str(tmp_path / "t.parquet"), "y", "toy"))
    query = result.sections["source"]["query"]
    assert "try_cast(day AS date) AS day" in query and "try_cast(translate(price, ',$', '') AS double) END AS price" in query
    assert result.sections["dataset"]["features"]["zip"] == "vocabulary"


def test_rows_in_time_order_backwards_are_split_by_time_too(numbers: dict[str, Values], tmp_path: Path) -> None:
    days = np.datetime64("2021-01-01") + np.arange(ROWS) // 2
    result = draft(tmp_path, {"day": [f"{day.item():%d.%m.%Y}" for day in days[::-1]], **numbers})
    assert result.sections["dataset"]["split"] == {"time": "day", "validation": "2021-06-10", "test": "2021-06-30"}


def test_spellings_of_a_class_are_one(numbers: dict[str, Values], random: np.random.Generator, tmp_path: Path) -> None:
    result = draft(tmp_path, {"a": numbers["a"], "y": random.choice(["yes", "yes ", "Yes", "no"], ROWS)})
    assert "lower(trim(y)) = 'yes' AS y" in result.sections["source"]["query"]
    assert any("of y are one class, 2 instead of 4; to keep them apart, write y for lower(trim(y))" in line for line in result.assumptions)
    assert query_values("SELECT lower(trim(y)) = 'yes' FROM t", ["yes ", "Yes", "no"]) == [True, True, False]
    assert query_values("SELECT y = 'yes' FROM t", ["yes ", "yes", "no"]) == [False, True, False], "to keep them apart"
    letters = draft(tmp_path, {"a": numbers["a"], "y": random.choice(["a", "A", "b"], ROWS)})
    assert "query" not in letters.sections["source"]


@pytest.mark.parametrize(
    ("classes", "options", "assumption"),
    [
        (["EU", "NA", "AS"], {}, "NA of y is a class, in"),
        (
            ["low", "NA", "high", "top"],
            {"nullValue": "NA"},
            "and so are those with NA, a missing value in other columns; if it is a class, remove",
        ),
        (["low", "None", "high"], {"nullValue": "NA"}, "None of y is a class, in"),
    ],
)
def test_a_mark_among_classes_is_one_or_missing_and_both_are_said(
    numbers: dict[str, Values], random: np.random.Generator, tmp_path: Path, classes: list[str], options: dict[str, str], assumption: str
) -> None:
    gaps = [value if number % 7 else "NA" for number, value in enumerate(numbers["a"])]
    result = draft(tmp_path, {"a": gaps, "y": random.choice(classes, ROWS)})
    assert result.sections["source"]["tables"]["toy"]["options"] == {"header": True, **options}
    assert any(assumption in line for line in result.assumptions)
    if not options and "NA" in classes:
        assert query_values("SELECT y FROM t WHERE y <> 'NA'", ["NA", "EU", None]) == ["EU"]
        assert any("add WHERE y <> 'NA' to source.query" in line for line in result.assumptions)
    if options and "NA" in classes:  # the remedy is a config, too
        values = from_yaml(yaml_text(result))
        values["source"]["tables"]["toy"]["options"].pop("nullValue")
        values["source"]["tables"]["toy"]["schema"] = "a string, y string"
        parse(values, "toy.yaml")


def test_the_rarer_of_two_classes_is_true_unless_a_name_or_sign_says_more(
    numbers: dict[str, Values], random: np.random.Generator, tmp_path: Path
) -> None:
    def condition(values: list[Any]) -> tuple[str, str]:
        result = draft(tmp_path, {"a": numbers["a"], "y": random.choice(values, ROWS, p=[0.7, 0.3])})
        return result.sections["source"].get("query", ""), " ".join(result.assumptions)

    query, assumptions = condition([1, 2])
    assert "y = 2 AS y" in query and "2 of y is true, as the rarer of two, in" in assumptions and "for 1, write = 1 for = 2" in assumptions
    assert query_values("SELECT y = 2 FROM t".replace("= 2", "= 1"), [1, 2]) == [True, False]
    assert condition([1, 0])[0] == "" and "y = 1 AS y" in condition([1, -1])[0]
    assert "y = 'yes' AS y" in condition(["yes", "no"])[0] and "y = 'sad' AS y" in condition(["happy", "sad"])[0]


def test_several_targets_are_numbers_that_one_network_predicts(numbers: dict[str, Values], tmp_path: Path) -> None:
    table = {"a": numbers["a"], "Weight": numbers["y"], "Waist": [*numbers["y"][1:], ""]}
    result = draft(tmp_path, table, "weight, Waist")
    assert result.sections["dataset"]["target"] == {"targets": {"encoder": "vector", "columns": ["Weight", "Waist"]}}
    assert list(result.sections["dataset"]["features"]) == ["a"] and "WHERE Waist IS NOT NULL" in result.sections["source"]["query"]
    named = draft(tmp_path, {**table, "Weight,Waist": numbers["a"][::-1]}, "Weight,Waist")
    assert named.sections["dataset"]["target"] == {"Weight_Waist": "standardize"}
    alone = draft(tmp_path, {**table, "c": ["x", "y"] * (ROWS // 2)}, "c")
    assert alone.sections["dataset"]["target"] == {"c": "binary"}, "a part of it alone"
    with pytest.raises(ConfigError, match="several targets must be numbers that vary; name one column"):
        draft(tmp_path, {**table, "c": ["x", "y"] * (ROWS // 2)}, "Weight,c")
    with pytest.raises(ConfigError, match="--target is Height, which is no column of"):
        draft(tmp_path, table, "Weight,Height")


def test_a_number_far_from_all_others_is_named(numbers: dict[str, Values], random: np.random.Generator, tmp_path: Path) -> None:
    marked = np.where(random.random(ROWS) < 0.05, -999, numbers["a"])
    balance = np.where(random.random(ROWS) < 0.05, -1, 3)
    result = draft(tmp_path, {**numbers, "marked": marked.tolist(), "balance": balance.tolist()})
    (line,) = [line for line in result.assumptions if "-999 of marked" in line]
    assert "give nullif(marked, -999) AS marked in source.query, and its feature impute: median" in line
    assert not any("balance" in line for line in result.assumptions)
    # the remedy
    values = from_yaml(yaml_text(result))
    values["source"]["query"] = "SELECT * EXCEPT (marked), nullif(marked, -999) AS marked FROM toy"
    values["dataset"]["features"]["marked"] = {"encoder": "standardize", "impute": "median"}
    parse(values, "toy.yaml")
    assert query_values("SELECT nullif(y, -999) AS y FROM t", [-999, 3]) == [None, 3]


def test_a_linear_model_of_many_columns_has_small_weights(random: np.random.Generator, tmp_path: Path) -> None:
    values = random.normal(size=(ROWS // 2, 150))
    columns = {f"a{number}": values[:, number].round(4) for number in range(150)}
    noisy, exact = (values[:, :50].sum(1) + noise * random.normal(size=len(values)) for noise in (12, 0))
    assert draft(tmp_path, {**columns, "y": noisy.round(3)}).sections["train"]["weight_decay"] == 1
    assert "weight_decay" not in draft(tmp_path, {**columns, "y": exact.round(3)}).sections["train"]


@pytest.mark.parametrize(
    ("beginning", "end", "keys"),
    [('{"orders":', "}", '.["orders"]'), ('{"a-b": {"orders":', "}}", '.["a-b"]["orders"]'), ('[{"orders":', "}]", '.[]["orders"]')],
)
def test_objects_inside_of_an_object_are_named(tmp_path: Path, beginning: str, end: str, keys: str) -> None:
    orders = json.dumps([{"a": number, "b": number % 2} for number in range(60)])
    (tmp_path / "t.json").write_text(beginning + orders + end)
    with pytest.raises(SourceError, match=re.escape(f"each in a line of its own: jq -c '{keys}[]' {tmp_path}/t.json")):
        draft_config(Request(str(tmp_path / "t.json"), "", "toy"))


def test_lists_of_other_things_than_objects_are_not_said_to_be_objects(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps({"pairs": [[number, number % 2] for number in range(60)], "odd": [{"a": 1}, 2]}))
    with pytest.raises(SourceError, match=r"give a table of at least 50$"):
        draft_config(Request(str(tmp_path / "t.json"), "", "toy"))


@pytest.mark.parametrize("marks", [["?", "NA"], ["#N/A", "NA"], ["#DIV/0!"], ["-"], ["."], ["-inf", "inf"]])
def test_marks_of_missing_numbers_begin_no_comments(numbers: dict[str, Values], tmp_path: Path, marks: list[str]) -> None:
    values = [marks[row % len(marks)] if row % 7 == 0 else value for row, value in enumerate(numbers["a"])]
    drafted = draft(tmp_path, {"a": values, "y": numbers["y"]})
    assert drafted.sections["source"]["tables"]["toy"]["options"] == {"header": True, "nullValue": marks[0]}
    assert drafted.introduction[0].startswith(f"{tmp_path}/t.csv: {ROWS} rows of 2 columns")
    assert f"{marks[0]} is a missing value, as in a: nullValue in the options of the table" in drafted.assumptions
    if len(marks) > 1:
        marked_rows = sum(value == marks[1] for value in values)
        assert f"{marked_rows} of {ROWS - len(values[::7]) + marked_rows} values of a are {marks[1]}, and missing" in drafted.assumptions


def test_comments_are_said_and_are_rows_without_the_option(numbers: dict[str, Values], tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = "".join(f"{a},{y}\n" for a, y in zip(numbers["a"], numbers["y"], strict=True))
    path.write_text(f"# measured by hand\n# in March\na,y\n{rows}")
    assumptions = draft_config(Request(str(path), "y", "toy")).assumptions
    assert (
        "2 lines of those read that begin with #, such as '# measured by hand', are comments, and no rows; if it begins values, remove "
        "comment from the options of the table"
    ) in assumptions
    with_option, without = (list(first_records(path.read_bytes(), TableDialect(comment=sign))) for sign in ("#", ""))
    assert len(without) == len(with_option) + 2


def test_infinity_among_numbers_is_null_in_the_query() -> None:
    texts = ["1.5", "inf", "NaN", "2", *["3"] * 400]
    (column,) = type_texts(texts)
    values = query_values(f"SELECT {column.sql.format('y')} AS y FROM t", texts)
    assert values == column.values.to_pylist() and values[:4] == [1.5, None, None, 2]


def test_columns_of_which_half_are_numbers_are_said_to_be_texts() -> None:
    texts = ["<0.1", "0.3", "0.4"] * 9
    (column,) = type_texts(texts)
    (_, remedy) = column.doubt.split("; for numbers, write ")
    assert column.doubt.startswith("a is text, since 9 of 27 values are no number, such as '<0.1'")
    sql = remedy.removesuffix(" in source.query, which makes all others NULL").replace("(a ", "(y ")
    assert query_values(f"SELECT {sql} FROM t", texts)[:3] == [None, 0.3, 0.4]
    assert type_texts(["x", "y", "1"])[0].doubt == ""


@pytest.mark.parametrize(("texts", "seconds"), [(["01:02:03", "48:00:30.5"], [3723, 172830.5]), (["1:30", "23:59"], [5400, 86340])])
def test_durations_are_texts_and_said(texts: list[str], seconds: list[float]) -> None:
    doubt = type_texts(texts)[0].doubt
    assert doubt.startswith(f"a is text, since {texts[0]} is a time of day or a duration, and no number; for its seconds, write ")
    sql = doubt.split("; for its seconds, write ")[1].removesuffix(" in source.query").replace("(a,", "(y,")
    assert query_values(f"SELECT {sql} FROM t", texts) == seconds


def test_numbers_with_several_signs_of_units_are_texts() -> None:
    assert type_texts(["$5", "€7.5", "£3"])[0].doubt == "a is text, since different units stand beside its numbers: $, €, £"
    assert type_texts(["0", "45.0%"])[0].values.to_pylist() == [0, 45]
    (column,) = type_texts(["45.0%", "0.25"])
    assert column.ddl == "string" and column.doubt.startswith(
        "a is text, since some of its numbers have % and others none; for shares of 1,"
    )
    sql = column.doubt.split("for shares of 1, write ")[1].removesuffix(" in source.query").replace("(a,", "(y,")
    assert query_values(f"SELECT {sql} FROM t", ["45.0%", "0.25"]) == [0.45, 0.25]


def test_zeros_of_both_signs_are_a_constant_target(numbers: dict[str, Values], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the target y is 0\.0 in every row; name a column that varies"):
        draft(tmp_path, {"a": numbers["a"], "y": [("0", "-0", "-0.0")[row % 3] for row in range(ROWS)]})


@pytest.mark.parametrize(
    ("form", "sql"),
    [
        ("%y/%m/%d", "try_to_date({0}, 'yy/MM/dd')"),
        ("%Y-%m-%d %H:%M:%S+00", ""),
        ("%Y-%m-%d %H:%M:%S+05", ""),
        ("[%d/%b/%Y:%H:%M:%S +0000]", r"try_to_timestamp({0}, '\'[\'dd/MMM/yyyy:HH:mm:ss Z\']\'')"),
        ("%a %b %e %H:%M:%S %Y", "' +', ' '), 'MMM d HH:mm:ss yyyy')"),
        ("%a, %d %b %Y %H:%M:%S +0000", "' +', ' '), 'dd MMM yyyy HH:mm:ss Z')"),
    ],
)
def test_times_of_logs_mails_and_databases_are_read(form: str, sql: str) -> None:
    times = [datetime(2021, 1, 1, 5) + timedelta(hours=47 * row) for row in range(ROWS)]
    (column,) = type_texts([time.strftime(form) for time in times])
    if form == "%y/%m/%d":
        assert column.values.to_pylist() == [time.date() for time in times]
    else:
        hours = 5 if form.endswith("+05") else 0
        assert column.values.to_pylist() == [time - timedelta(hours=hours) for time in times]
    assert column.sql.endswith(sql) and bool(column.sql) == bool(sql)


def test_a_short_year_in_front_is_one_whose_days_vary() -> None:
    assert (
        "yy/MM/dd, as its years would vary more"
        in type_texts([f"21/{month:02}/{day:02}" for month in (1, 2) for day in range(1, 29)])[0].doubt
    )
    day_first = type_texts([f"{day:02}/{month:02}/21" for month in (1, 2) for day in range(1, 29)])[0]
    assert day_first.doubt == "a is a date written dd/MM/yy; its years are from 2000 to 2099"
    assert "dd/MM/yy or yy/MM/dd: 21/04/22 is taken for" in type_texts(["21/03/21", "22/03/22", "21/04/22"])[0].doubt


def test_times_that_are_not_read_are_said_and_are_no_key(numbers: dict[str, Values], tmp_path: Path) -> None:
    times = [f"{datetime(2021, 1, 1, 5) + timedelta(minutes=7 * row)} EST" for row in range(ROWS)]
    drafted = draft(tmp_path, {"t": times, **numbers})
    assert "key" not in drafted.sections["dataset"] and any(
        line.startswith(
            "t is text, since times written as '2021-01-01 05:00:00 EST' are not read; for times, write try_to_timestamp(t, PATTERN)"
        )
        for line in drafted.assumptions
    )
    assert drafted.left_out == "left out: t, a different value in every row, an identifier"


def test_a_mark_among_numbers_of_json_is_missing(tmp_path: Path) -> None:
    records = [{"a": "n/a" if row == 3 else row / 7, "y": row % 3 / 2} for row in range(ROWS)]
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    drafted = draft_config(Request(str(tmp_path / "t.jsonl"), "y", "toy"))
    assert "a string" in drafted.sections["source"]["tables"]["toy"]["schema"] and "a" in drafted.sections["dataset"]["features"]
    assert f"1 of {ROWS} values of a is n/a, and missing" in drafted.assumptions


def test_classes_of_few_rows_are_said(numbers: dict[str, Values], tmp_path: Path) -> None:
    classes = ["rare" if row in (5, 77) else "solo" if row == 9 else "ab"[row % 2] for row in range(ROWS)]
    drafted = draft(tmp_path, {"a": numbers["a"], "y": classes})
    line = (
        "rare (2 rows), solo (1 row) of y are classes of fewer rows than splits, so some split has none; for a model without them, "
        "add WHERE y NOT IN ('rare', 'solo') to source.query"
    )
    assert line in drafted.assumptions
    assert drafted.comments["dataset", "split"] == "a class has about 1 row: each split gets its share of every class of 3 rows or more"
    remaining = query_values("SELECT y FROM t WHERE y NOT IN ('rare', 'solo')", classes)
    assert set(remaining) == {"a", "b"} and len(remaining) == ROWS - 3
    drafted = draft(tmp_path, {"a": numbers["a"], "y": ["rare" if row in (5, 77) else "a" for row in range(ROWS)]})
    assert any(line.endswith("so some split has none; give more rows of it") for line in drafted.assumptions)
    enough = draft(tmp_path, {"a": numbers["a"], "y": ["rare" if row % 99 == 5 else "a" for row in range(ROWS)]})
    assert not any("of fewer rows than splits" in line for line in enough.assumptions)


def test_a_target_that_counts_rows_is_said(numbers: dict[str, Values], tmp_path: Path) -> None:
    columns = {"a": numbers["a"], "b": numbers["y"], "n": [10_000 + row for row in range(ROWS)]}
    line = (
        "n is another whole number in each row, as numbers of rows are, which nothing predicts; if it is one, name another target with "
        "--target"
    )
    assert line in draft(tmp_path, columns, "").assumptions
    assert line not in draft(tmp_path, columns, "b").assumptions


def test_infinite_numbers_of_typed_files_are_missing(numbers: dict[str, Values], tmp_path: Path) -> None:
    values = np.where(np.arange(ROWS) % 9 == 0, np.inf, numbers["a"])
    pq.write_table(pa.table({"a": values, "y": numbers["y"]}), tmp_path / "t.parquet")
    drafted = draft_config(Request(str(tmp_path / "t.parquet"), "y", "toy"))
    assert "45 of 400 values of a are infinite, and missing" in drafted.assumptions
    assert "IF(abs(a) < double('inf'), a, NULL) AS a" in drafted.sections["source"]["query"]
    records = [{"a": float("nan") if row == 3 else row / 7, "y": row % 3 / 2} for row in range(ROWS)]
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    drafted = draft_config(Request(str(tmp_path / "t.jsonl"), "y", "toy"))
    assert drafted.sections["source"]["tables"]["toy"]["options"] == {"allowNonNumericNumbers": True}
    assert "NaN or Infinity, which is no JSON, is a missing value of a, by allowNonNumericNumbers" in drafted.assumptions


def test_other_archives_are_named(tmp_path: Path) -> None:
    for name, data, line in (
        ("t.zip", b"PK\3\4", "unpack it, and name its folder"),
        ("t.csv.xz", b"\xfd7zXZ\0", "is compressed by xz, which is not read; unpack it, or compress it by gzip"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises((ConfigError, SourceError), match=line):
            draft_config(Request(str(tmp_path / name), "", "toy"))


def test_an_encoding_that_is_guessed_is_said(numbers: dict[str, Values], tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = "".join(f"{a},{'süß' if a > 0 else 'herb'},{y}\n" for a, y in zip(numbers["a"], numbers["y"], strict=True))
    line = f"{path} is not UTF-8, and is read as iso-8859-1, such as 'süß'; for another, change encoding in the options of the table"
    for encoding in ("iso-8859-1", "utf-8", "utf-16"):
        path.write_bytes(f"a,taste,y\n{rows}".encode(encoding))
        drafted = draft_config(Request(str(path), "y", "toy"))
        assert (line in drafted.assumptions) == (encoding == "iso-8859-1")
    assert drafted.sections["source"]["tables"]["toy"]["options"]["encoding"] == "utf-16"


def test_streams_are_no_data_and_flags_stand_once(tmp_path: Path) -> None:
    for path in ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"):
        with pytest.raises(ConfigError, match="neither a file nor a folder, as a pipe is"):
            draft_config(Request(path, "", "toy"))
    with pytest.raises(ConfigError, match="--target stands twice; give it once"):
        COMMANDS["init"]("lockstep init", [str(tmp_path), "--target", "y", "--target=x"])


def test_texts_among_numbers_with_marks_are_null() -> None:
    (column,) = type_texts(["x", ".", *["1.5"] * 400])
    assert column.values.to_pylist()[:3] == [None, None, 1.5] and column.sql == "try_cast({} AS double)"
    assert column.doubt == (
        "a is a number, though 1 of 401 values is none, such as 'x'; the query makes NULL of them; 1 of 402 values of a is ., and missing"
    )
