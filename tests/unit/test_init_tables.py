"""`lockstep init` for tables: what it writes for each kind of column, and one clear line for what no config can be made of."""

import gzip
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drafts import draft_config

from pipelines.commands import COMMANDS
from pipelines.config.load import load, parse
from pipelines.config.reading import from_yaml
from pipelines.data.features.auto.encoder_choice import number_style
from pipelines.errors import ConfigError, LockstepError, SourceError
from pipelines.init.draft import Draft, Request, yaml_text
from pipelines.init.tables.dialect import HEAD_BYTES
from pipelines.init.tables.find_table import find_table
from pipelines.init.tables.sample import even_files, sample_text

ROWS = 400
Values = Sequence[Any]


def write_csv(path: Path, columns: Mapping[str, Values], separator: str = ",", header: bool = True) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [list(columns)] * header + list(zip(*columns.values(), strict=True))
    path.write_text("".join(separator.join(map(str, row)) + "\n" for row in rows))
    return str(path)


def draft(data: str, target: str = "y") -> Draft:
    """The draft of the data, which is a valid config."""
    result = draft_config(Request(data, target, "toy"))
    parse(from_yaml(yaml_text(result)), "toy.yaml")
    return result


def features(result: Draft) -> dict[str, Any]:
    return dict(result.sections["dataset"]["features"])


def table_settings(result: Draft) -> dict[str, Any]:
    return dict(result.sections["source"]["tables"]["toy"])


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def columns(random: np.random.Generator) -> dict[str, Values]:
    """A number, a category and the target."""
    numbers = random.normal(size=ROWS).round(3)
    return {"a": numbers, "color": random.choice(["red", "green", "blue"], ROWS), "y": np.where(numbers > 0, "yes", "no")}


def test_a_draft_is_a_pure_function_of_the_file(columns: dict[str, Values], random: np.random.Generator, tmp_path: Path) -> None:
    gaps = [value if number % 5 else "" for number, value in enumerate(columns["a"])]
    path = write_csv(tmp_path / "t.csv", {"note": sentences(random, ROWS, 9), "gaps": gaps, **columns})
    assert yaml_text(draft(path)) == yaml_text(draft(path))


@pytest.mark.parametrize(
    ("separator", "options"),
    [(",", {}), (";", {"sep": ";"}), ("\t", {"sep": "\t"}), ("|", {"sep": "|"})],
    ids=["comma", "semicolon", "tab", "bar"],
)
@pytest.mark.parametrize("header", [True, False], ids=["header", "no header"])
def test_separator_and_header(columns: dict[str, Values], tmp_path: Path, separator: str, options: dict[str, Any], header: bool) -> None:
    result = draft(write_csv(tmp_path / "t.csv", columns, separator, header), "y" if header else "c3")
    assert table_settings(result).get("options", {}) == ({"header": True} if header else {}) | options
    assert table_settings(result)["schema"] == ("a double, color string, y string" if header else "c1 double, c2 string, c3 string")


def test_aligned_values_are_split_by_the_query(random: np.random.Generator, tmp_path: Path) -> None:
    lines = [f"  {a: .4e}   {b: .4e}   {a + b: .4e}\n" for a, b in random.normal(size=(ROWS, 2))]
    (tmp_path / "t.txt").write_text("".join(lines))
    result = draft(str(tmp_path / "t.txt"), "")
    assert table_settings(result)["format"] == "text" and "split(trim(value), '\\\\s+')" in result.sections["source"]["query"]
    assert result.sections["dataset"]["target"] == {"c3": "standardize"}


def test_aligned_values_may_have_quotes_behind_a_tab(random: np.random.Generator, tmp_path: Path) -> None:
    rows = [f'{random.normal():<9.3f}{"?" if row == 7 else row % 5:<4} {row % 2}\t"name {row} of it"' for row in range(200)]
    (tmp_path / "t.data").write_text("\n".join(rows) + "\n")
    sections = draft_config(Request(str(tmp_path / "t.data"), "c3", "toy")).sections
    query = sections["source"]["query"]
    assert "regexp_extract_all(value" in query and "nullif(get(cells, 3), '?') AS c4" in query and "WHERE size(cells) = 4" in query
    assert sections["dataset"]["features"]["c2"] == {"encoder": "standardize", "impute": "median"}


def test_aligned_lines_of_another_width_are_told_and_the_names_are_no_row(random: np.random.Generator, tmp_path: Path) -> None:
    lines = [f"  {a: .3f}   {b: .3f}   {a + b: .3f}\n" for a, b in random.normal(size=(ROWS, 2))]
    (tmp_path / "t.txt").write_text("".join(["  a   b   y\n", *lines[:9], "  1.5   2\n", *lines[9:], "  7\n"]))
    result = draft(str(tmp_path / "t.txt"))
    assert f"{tmp_path}/t.txt: line 11 has 2 values, and most have 3: it and 1 more are left out by the query" in result.assumptions
    assert "WHERE size(cells) = 3 AND array_join(cells, ' ') <> 'a b y'" in result.sections["source"]["query"]
    assert "max_quarantined" not in result.sections["source"]


@pytest.mark.parametrize("names", ["null,NaN,y", "true,null,y", "NA,None,y", "y,true,n/a", "a,NULL,null"])
@pytest.mark.parametrize("kinds", [("number", "number", "class"), ("class", "boolean", "class"), ("number", "boolean", "class")])
def test_words_such_as_null_and_true_are_names_too(names: str, kinds: tuple[str, ...], random: np.random.Generator, tmp_path: Path) -> None:
    values = {"number": random.normal(size=ROWS).round(3), "boolean": random.choice(["true", "false"], ROWS)}
    values["class"] = random.choice(["red", "green"], ROWS)
    rows = "".join(f"{','.join(map(str, row))}\n" for row in zip(*(values[kind] for kind in kinds), strict=True))
    (tmp_path / "t.csv").write_text(f"{names}\n{rows}")
    table = find_table(str(tmp_path / "t.csv"))
    assert table and table.settings["options"]["header"] and table.rows == ROWS
    (tmp_path / "t.csv").write_text(f"{'NA,' * (len(kinds) - 1)}red\n{rows}")
    table = find_table(str(tmp_path / "t.csv"))
    assert table and "header" not in table.settings.get("options", {}) and table.rows == ROWS + 1


@pytest.mark.parametrize(
    ("encoding", "text", "expected"),
    [("utf-8-sig", "é", None), ("utf-16", "é", "utf-16"), ("iso-8859-1", "é", "iso-8859-1"), ("windows-1252", "€", "windows-1252")],
)
def test_encodings(columns: dict[str, Values], tmp_path: Path, encoding: str, text: str, expected: str | None) -> None:
    path = write_csv(tmp_path / "t.csv", {**columns, "color": [f"{text}{number % 3}" for number in range(ROWS)]})
    Path(path).write_bytes(Path(path).read_text().encode(encoding))
    result = draft(path)
    assert table_settings(result)["options"].get("encoding") == expected and "color" in features(result)
    assert table_settings(result)["schema"].startswith("a double")


def test_quotes_are_those_of_the_file(columns: dict[str, Values], tmp_path: Path) -> None:
    quoted = {**columns, "note": [f'"a ""b"", {number % 3}"' for number in range(ROWS)]}
    assert table_settings(draft(write_csv(tmp_path / "quoted.csv", quoted)))["options"] == {"header": True}
    stray = {**columns, "note": [f'5" of {number % 3}' for number in range(ROWS)]}
    assert table_settings(draft(write_csv(tmp_path / "stray.csv", stray)))["options"] == {"header": True, "quote": ""}
    broken = {**columns, "note": [f'"a\nb{number % 3}"' for number in range(ROWS)]}
    assert table_settings(draft(write_csv(tmp_path / "lines.csv", broken)))["options"] == {"header": True, "multiLine": True}


def test_marks_of_missing_values(columns: dict[str, Values], tmp_path: Path) -> None:
    marked = {**columns, "a": ["NA" if number % 9 == 0 else value for number, value in enumerate(columns["a"])]}
    result = draft(write_csv(tmp_path / "t.csv", marked))
    assert table_settings(result)["options"]["nullValue"] == "NA" and features(result)["a"] == {
        "encoder": "normal_quantile",
        "impute": "median",
    }
    assert "11 % missing" in result.comments["dataset", "features", "a"]
    marked_twice = {**marked, "b": ["?" if number % 7 == 0 else number % 50 for number in range(ROWS)]}
    result = draft(write_csv(tmp_path / "two.csv", marked_twice))
    assert (
        "try_cast(a AS double) AS a" in result.sections["source"]["query"]
        or "try_cast(b AS int) AS b" in result.sections["source"]["query"]
    )


def test_numbers_are_those_of_our_grammar(columns: dict[str, Values], tmp_path: Path) -> None:
    odd = {
        "java": [f"{number % 30}D" for number in range(ROWS)],
        "zip": [f"{number % 40:05}" for number in range(ROWS)],
        "large": [10**12 + number % 50 for number in range(ROWS)],
        "small": [number % 50 for number in range(ROWS)],
        "exponent": [f"{number % 50}e3" for number in range(ROWS)],
        "flag": ["True" if number % 3 else "false" for number in range(ROWS)],
        **columns,
    }
    schema = table_settings(draft(write_csv(tmp_path / "t.csv", odd)))["schema"]
    assert schema.startswith("java string, zip string, large long, small int, exponent double, flag boolean, a double")


def test_decimal_commas_become_numbers(columns: dict[str, Values], tmp_path: Path) -> None:
    commas = {**columns, "a": [str(value).replace(".", ",") for value in columns["a"]]}
    result = draft(write_csv(tmp_path / "t.csv", commas, ";"))
    assert "THEN try_cast(replace(a, ',', '.') AS double) END AS a" in result.sections["source"]["query"]
    assert features(result)["a"] == "normal_quantile" and "a is a number, with a decimal comma" in result.assumptions


def test_each_column_has_its_encoder_and_reason(columns: dict[str, Values], random: np.random.Generator, tmp_path: Path) -> None:
    table = {
        "gain": np.where(random.random(ROWS) < 0.37, 0, random.lognormal(0, 2, ROWS).round(2)),
        "loss": np.where(random.random(ROWS) < 0.95, 0, random.integers(1, 9, ROWS)),
        **columns,
    }
    result = draft(write_csv(tmp_path / "t.csv", table))
    reasons = {path[-1]: text for path, text in result.comments.items() if path[:2] == ("dataset", "features")}
    assert features(result)["gain"] == "log1p" and reasons["gain"].endswith("% zeros, long tail: log1p")
    assert "gain_bins" not in features(result)
    assert features(result)["loss_values"] == {"encoder": "vocabulary", "column": "loss", "min_count": 5}
    assert features(result)["color"] == "vocabulary" and reasons["color"] == "3 distinct values: vocabulary"
    assert "y = 'yes' AS y" in result.sections["source"]["query"] and result.sections["dataset"]["target"] == {"y": "binary"}


def test_a_wide_table_has_a_pattern_and_names_what_the_query_adds(
    columns: dict[str, Values], random: np.random.Generator, tmp_path: Path
) -> None:
    wide = {f"x{number}": random.normal(size=ROWS).round(2) for number in range(120)}
    days = np.datetime64("2024-01-01") + random.integers(0, 300, ROWS)
    result = draft(write_csv(tmp_path / "t.csv", {**wide, "day": days, "y": columns["y"]}))
    assert features(result) == {"day_day": "normal_quantile", "day_month": "vocabulary", "day_dayofweek": "vocabulary", "*": "auto"}
    assert "normal_quantile 120" in result.comments["dataset", "features", "*"]


LINEAR = {"kind": "tabular", "hidden": []}
TRIED: dict[str, dict[str, Any]] = {
    "product": {"kind": "trees"},
    "sum": LINEAR,
    "class of the product": {"kind": "trees"},
    "waves": {"kind": "tabular", "hidden": [128, 128], "dropout": 0.1, "number_embedding": "piecewise"},
}


@pytest.mark.parametrize("target", TRIED)
def test_a_trial_on_the_sample_chooses_trees_a_linear_model_or_a_network(target: str, random: np.random.Generator, tmp_path: Path) -> None:
    """Of the product of two columns, a linear model sees nothing; of a sum of all, a tree sees little; a wave over a sum is smooth."""
    numbers = random.normal(size=(1_000, 5 if target == "waves" else 120)).round(3)
    numbers[::50, 3] = np.nan
    product = np.nan_to_num(numbers[:, 0]).clip(-1, 1) * (numbers[:, 1] > 0)
    classes = np.array(["low", "middle", "high"])[np.digitize(product, [-0.1, 0.1])]
    total = np.nansum(numbers, axis=1)
    values = {"product": product.round(4), "sum": total.round(4), "class of the product": classes, "waves": np.cos(total).round(4)}
    table = {**{f"x{number}": column for number, column in enumerate(numbers.T)}, "y": values[target]}
    result = draft(write_csv(tmp_path / "t.csv", table))
    assert result.sections["task"] == TRIED[target]
    metric = "accuracy" if "class" in target else "R²"
    assert f"{metric} on 1,000 rows of the sample, held out from small fits: boosted trees 0." in result.comments[("train",)]
    encoder = features(result).get("*:number") if target == "sum" else features(result).get("x4", features(result).get("*"))
    assert encoder == (
        {"encoder": "standardize", "impute": "mean"} if target == "sum" else "normal_quantile" if target == "waves" else "auto"
    )


@pytest.mark.parametrize(("target", "hidden"), [("sums", []), ("waves", [128, 128])])
def test_of_several_targets_a_trial_chooses_a_linear_model_or_a_network(
    target: str, hidden: list[int], random: np.random.Generator, tmp_path: Path
) -> None:
    numbers = random.normal(size=(600, 20 if target == "sums" else 3)).round(3)
    total = numbers.sum(axis=1)
    first, second = (total, numbers[:, 0] - total) if target == "sums" else (np.cos(total), np.sin(total))
    table = {**{f"x{number}": column for number, column in enumerate(numbers.T)}, "a": first.round(4), "b": second.round(4)}
    result = draft(write_csv(tmp_path / "t.csv", table), "a,b")
    assert result.sections["task"]["hidden"] == hidden
    reason = result.comments[("train",)]
    assert "R² on 600 rows of the sample, held out from small fits: a linear model" in reason and "trees predict one number" in reason


def test_a_trial_tells_the_values_of_a_column_of_hundreds_apart(random: np.random.Generator, tmp_path: Path) -> None:
    shops = random.integers(0, 300, 2_400)
    levels = random.normal(size=300)[shops]
    table = {"shop": [f"s{shop}" for shop in shops], "x": random.normal(size=2_400).round(3)}
    result = draft(write_csv(tmp_path / "t.csv", {**table, "y": (levels + table["x"]).round(3)}))
    assert result.sections["task"] == LINEAR, result.comments[("train",)]


def test_a_trial_takes_hours_for_categories_as_the_draft_does(random: np.random.Generator, tmp_path: Path) -> None:
    """An hour's level adds up with numbers, though hours in their order do not."""
    hours = random.integers(0, 5_000, 1_000)
    numbers = random.normal(size=(1_000, 6)).round(3)
    level = 2 * random.normal(size=24)[hours % 24]
    table = {"time": np.datetime64("2024-01-01T00:00:00") + hours.astype("timedelta64[h]"), **{f"x{n}": x for n, x in enumerate(numbers.T)}}
    result = draft(write_csv(tmp_path / "t.csv", {**table, "y": (numbers.sum(axis=1) + level).round(3)}))
    assert result.sections["task"] == LINEAR, result.comments[("train",)]


def test_a_trial_takes_odd_numbers_and_classes_of_few_rows(
    random: np.random.Generator, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """Infinite, huge and missing numbers; a column that is empty in two of three rows; a class of one row."""
    numbers = random.normal(size=(600, 110)).round(3)
    numbers[::7, 0], numbers[1::7, 1], numbers[::5, 2] = np.inf, 1e300, np.nan
    numbers[np.arange(600) % 3 != 2, 3] = np.nan
    classes = np.where(np.arange(600) < 1, "rare", np.where(numbers[:, 4] > 0, "high", "low"))
    result = draft(write_csv(tmp_path / "t.csv", {**{f"x{number}": numbers[:, number] for number in range(110)}, "y": classes}))
    assert "accuracy on 599 rows of the sample, held out from small fits" in result.comments[("train",)]
    assert not recwarn.list


def test_without_lightgbm_a_network_is_drafted_and_that_is_said(
    columns: dict[str, Values], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    result = draft(write_csv(tmp_path / "t.csv", columns))
    assert result.sections["task"]["kind"] == "tabular" and "trees are not tried: they need lightgbm" in result.comments[("train",)]


def test_quantiles_of_very_many_columns_are_not_asked_for() -> None:
    few, many = (number_style(columns, has_classes=False, is_split_by_time=False) for columns in (300, 301))
    assert few.is_normal and few.has_quantiles and not (many.is_normal or many.has_quantiles)


def test_what_is_left_out_is_named(columns: dict[str, Values], tmp_path: Path) -> None:
    table = {
        "id": [f"r{number}" for number in range(ROWS)],
        "always": [7] * ROWS,
        "empty": [""] * ROWS,
        "verdict": np.where(columns["y"] == "yes", 3, 4),
        **columns,
    }
    result = draft(write_csv(tmp_path / "t.csv", table))
    assert result.sections["dataset"]["key"] == ["id"] and list(features(result)) == ["a", "color"]
    left_out = result.comments["dataset", "features"]
    for line in ("id, a different value in every row", "always, constant, always 7", "empty, empty", "verdict, a near copy of the target"):
        assert f"Left out: {line}" in left_out


def test_a_number_that_follows_the_target_is_left_out(columns: dict[str, Values], tmp_path: Path) -> None:
    table = {"a": columns["a"], "twice": 2 * np.asarray(columns["a"]) + 1, "color": columns["color"], "y": columns["a"]}
    result = draft(write_csv(tmp_path / "t.csv", table))
    assert list(features(result)) == ["color"] and result.sections["dataset"]["target"] == {"y": "standardize"}


def test_rows_of_one_identifier_go_to_one_split(columns: dict[str, Values], tmp_path: Path) -> None:
    result = draft(write_csv(tmp_path / "t.csv", {"patient_id": [number // 5 for number in range(ROWS)], **columns}))
    assert result.sections["dataset"]["split"]["group"] == "patient_id" and "patient_id" not in features(result)
    assert any("for a random split, remove dataset.split.group" in line for line in result.assumptions)


def test_dates_become_parts_and_rows_in_order_a_time_split(columns: dict[str, Values], random: np.random.Generator, tmp_path: Path) -> None:
    days = np.datetime64("2020-01-01") + np.arange(ROWS)
    mixed = draft(write_csv(tmp_path / "mixed.csv", {"day": random.permutation(days), **columns}))
    assert {"day_day", "day_month", "day_dayofweek"} <= features(mixed).keys() and "month(day) AS day_month" in mixed.sections["source"][
        "query"
    ]
    ordered = draft(write_csv(tmp_path / "ordered.csv", {"day": days, **columns}))
    assert ordered.sections["dataset"]["split"] == {"time": "day", "validation": "2020-11-16", "test": "2020-12-26"}
    assert "day_day" not in features(ordered) and "day_dayofweek" in features(ordered)
    months = random.permutation(np.resize(days[:400].astype("datetime64[M]").astype("datetime64[D]"), ROWS))
    for moments in (months, months + np.timedelta64(14, "D"), months - np.timedelta64(1, "D")):
        parts = features(draft(write_csv(tmp_path / "months.csv", {"day": moments, **columns})))
        assert "day_month" in parts and "day_dayofweek" not in parts
    german = [f"{day.astype(object):%d.%m.%Y}" for day in random.permutation(days)]
    assert "to_date(day, 'dd.MM.yyyy')" in draft(write_csv(tmp_path / "german.csv", {"day": german, **columns})).sections["source"]["query"]


def test_impossible_values_are_expected_not_to_be(columns: dict[str, Values], random: np.random.Generator, tmp_path: Path) -> None:
    ages = random.integers(1, 90, 2 * ROWS)
    ages[:2] = -1
    change = random.normal(size=2 * ROWS).round(2)
    table = {"age": ages, "change": change, **{name: [*values, *values] for name, values in columns.items()}}
    result = draft(write_csv(tmp_path / "t.csv", table))
    assert result.sections["source"]["expect"] == {"plausible age": "age >= 0"}


@pytest.mark.parametrize(
    ("values", "encoder"),
    [
        (["no", "yes"], "binary"),
        ([0, 1], "binary"),
        (["True", "False"], "binary"),
        ([0, 1, 2, 3], "label"),
        (["a", "b", "c"], "label"),
        ([number / 8 for number in range(60)], "standardize"),
        (list(range(60)), "standardize"),
    ],
    ids=["texts", "0 and 1", "booleans", "few whole numbers", "classes", "fractions", "many whole numbers"],
)
def test_the_target_decides_the_task(columns: dict[str, Values], tmp_path: Path, values: Values, encoder: str) -> None:
    result = draft(write_csv(tmp_path / "t.csv", {**columns, "y": [values[number * 7 % len(values)] for number in range(ROWS)]}))
    assert result.sections["dataset"]["target"] == {"y": encoder}


def test_a_doubt_about_the_target_is_told(columns: dict[str, Values], tmp_path: Path) -> None:
    numbered = {**columns, "Label": [number % 3 for number in range(ROWS)], "last": columns["a"]}
    result = draft(write_csv(tmp_path / "t.csv", numbered), "")
    assert result.sections["dataset"]["target"] == {"Label": "label"}
    assert result.assumptions[0] == "the target is Label, by its name; for another column, --target NAME"
    assert "for a quantity, set its encoder to standardize" in result.assumptions[1]
    last = draft(write_csv(tmp_path / "last.csv", {"y1": columns["y"], "a": columns["a"]}), "")
    assert last.sections["dataset"]["target"] == {"a": "standardize"} and "the last column" in last.assumptions[0]


def test_rows_without_a_target_are_left_out(columns: dict[str, Values], tmp_path: Path) -> None:
    missing = {**columns, "y": ["" if number % 10 == 0 else value for number, value in enumerate(columns["y"])]}
    result = draft(write_csv(tmp_path / "t.csv", missing))
    assert result.sections["source"]["query"].endswith("WHERE y IS NOT NULL") and "40 of those read" in result.assumptions[-1]


def test_a_rare_class_has_no_weight_and_chooses_the_epoch_by_its_precision(columns: dict[str, Values], tmp_path: Path) -> None:
    rare = {"a": [*columns["a"]] * 5, "color": [*columns["color"]] * 5, "y": [number % 50 == 0 for number in range(5 * ROWS)]}
    result = draft(write_csv(tmp_path / "t.csv", rare))
    assert "class_weights" not in result.sections["task"] and result.sections["train"]["monitor"] == "average_precision"
    assert "average precision on 2,000 rows of the sample" in result.comments[("train",)], "each row is held out"
    assert result.sections["dataset"]["split"]["stratify"] == "y" and "each split gets its share" in result.comments["dataset", "split"]


def test_classes_of_few_rows_are_stratified_unless_a_group_or_the_files_split(columns: dict[str, Values], tmp_path: Path) -> None:
    few = {**columns, "y": ["abc"[min(number % 60, 2)] for number in range(ROWS)]}
    assert draft(write_csv(tmp_path / "t.csv", few)).sections["dataset"]["split"]["stratify"] == "y"
    assert "stratify" not in draft(write_csv(tmp_path / "u.csv", columns)).sections["dataset"]["split"]
    grouped = {"patient_id": [f"p{number // 5}" for number in range(ROWS)], **few}
    assert "stratify" not in draft(write_csv(tmp_path / "g.csv", grouped)).sections["dataset"]["split"]


def test_ratings_have_users_and_items(random: np.random.Generator, tmp_path: Path) -> None:
    users, items = random.integers(0, 60, 3_000), random.integers(0, 80, 3_000)
    table = {"user_id:token": users, "item_id:token": items, "rating:float": random.integers(1, 6, 3_000), "age:float": users % 7}
    result = draft(write_csv(tmp_path / "t.inter", table, "\t"), "rating")
    assert result.sections["task"]["user"] == ["user_id", "age"] and result.sections["task"]["item"] == ["item_id"]
    assert table_settings(result)["options"]["enforceSchema"] is True


def test_texts_with_classes_are_a_task_of_texts(random: np.random.Generator, tmp_path: Path) -> None:
    words = np.array(["good", "bad", "film", "plot", "actor", "long", "fine", "dull"])
    texts = [" ".join(random.choice(words, 12)) for _ in range(ROWS)]
    result = draft(write_csv(tmp_path / "t.csv", {"text": texts, "y": ["pos" if "good" in text else "neg" for text in texts]}))
    assert result.sections["task"]["kind"] == "text" and features(result)["text"]["encoder"] == "terms"


def sentences(random: np.random.Generator, rows: int, words: int = 12) -> list[str]:
    vocabulary = np.array([f"word{number}" for number in range(40)])
    return [" ".join(random.choice(vocabulary, random.integers(words // 2, words))) for _ in range(rows)]


@pytest.mark.parametrize("first", [0, 1, 1700])
def test_row_numbers_that_begin_below_the_names_are_no_names(first: int, columns: dict[str, Values], tmp_path: Path) -> None:
    """The first of them are smaller than all others, and count up, as years do in a line of names."""
    index = {"": range(first, first + ROWS), "number": range(first + 1, first + 1 + ROWS)}
    result = draft(write_csv(tmp_path / "toy.csv", {**index, **columns}))
    assert result.introduction[0].split(": ")[1].startswith(f"{ROWS} rows")
    assert table_settings(result)["options"] == {"header": True, "enforceSchema": True}


def test_a_name_of_two_lines_is_read_in_a_long_table(columns: dict[str, Values], tmp_path: Path) -> None:
    """As sheets are saved: where thousands of records are sound, those of one line or of several score the same."""
    path = write_csv(
        tmp_path / "toy.csv", {'"turnover\n(EUR)"': [*range(ROWS)] * 5, **{name: [*column] * 5 for name, column in columns.items()}}
    )
    result = draft(path)
    assert result.introduction[0].split(": ")[1].startswith(f"{5 * ROWS:,} rows of 4 columns")
    assert table_settings(result)["options"] == {"header": True, "multiLine": True, "enforceSchema": True}


@pytest.mark.parametrize("names", ["y\n", ",y\n"])
def test_one_column_beside_an_index_is_no_table(names: str, tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=ROWS).round(3)
    (tmp_path / "toy.csv").write_text(names + "".join(f"{f'{row},' if ',' in names else ''}{y}\n" for row, y in enumerate(values)))
    with pytest.raises(LockstepError, match=r"has one column, y|no column besides y is a feature"):
        draft(str(tmp_path / "toy.csv"))


@pytest.mark.parametrize("target", ["classes", "number"])
def test_texts_beside_other_columns_are_terms(columns: dict[str, Values], random: np.random.Generator, tmp_path: Path, target: str) -> None:
    title, note = sentences(random, ROWS, 12), sentences(random, ROWS, 200)
    note[3] = ""
    y = columns["y"] if target == "classes" else random.normal(size=ROWS).round(3)
    result = draft(write_csv(tmp_path / "t.csv", {"title": title, "note": note, **columns, "y": y}))
    assert features(result)["title"]["encoder"] == features(result)["note"]["encoder"] == "terms"
    assert features(result)["title"]["characters"] == [3, 4, 5] and "characters" not in features(result)["note"]
    assert "coalesce(note, '') AS note" in result.sections["source"]["query"] and "AS title" not in result.sections["source"]["query"]
    assert result.comments["dataset", "features", "note"].startswith("words and pairs of words; 95 % of the texts have at most")
    assert "boosted trees" in result.comments[("train",)]


def test_a_trial_chooses_trees_for_a_text_whose_words_count_beside_a_number(random: np.random.Generator, tmp_path: Path) -> None:
    note, price = sentences(random, 900), random.normal(size=900).round(3)
    y = np.where(["word1 " in text for text in note], price, -price).round(3)
    result = draft(write_csv(tmp_path / "t.csv", {"note": note, "price": price, "y": y}))
    assert result.sections["task"] == {"kind": "trees"} and features(result)["note"]["encoder"] == "terms"
    assert "boosted trees 0." in result.comments[("train",)]


def test_nothing_but_texts_is_a_task_of_texts_also_for_a_number(random: np.random.Generator, tmp_path: Path) -> None:
    table = {"id": range(ROWS), "title": sentences(random, ROWS, 10), "note": sentences(random, ROWS), "y": random.normal(size=ROWS)}
    result = draft(write_csv(tmp_path / "t.csv", table))
    assert result.sections["task"] == {"kind": "text"} and list(features(result)) == ["title", "note"]
    assert "key" not in result.sections["dataset"] and result.sections["dataset"]["target"] == {"y": "standardize"}


def test_a_wide_table_names_its_texts_beside_the_pattern(columns: dict[str, Values], random: np.random.Generator, tmp_path: Path) -> None:
    wide = {f"x{number}": random.normal(size=ROWS).round(2) for number in range(101)}
    result = draft(write_csv(tmp_path / "t.csv", {**wide, "note": ["", *sentences(random, ROWS - 1)], "y": columns["y"]}))
    assert list(features(result)) == ["note", "*"] and features(result)["note"]["encoder"] == "terms"
    assert result.sections["source"]["query"].count("coalesce(note, '')") == 1


@pytest.mark.parametrize("odd", ["", "!!! ...", "   ", pytest.param("1 MB", marks=pytest.mark.full)])
def test_odd_texts_are_texts(odd: str, columns: dict[str, Values], random: np.random.Generator, tmp_path: Path) -> None:
    note = sentences(random, 200)
    note[0] = note[9] = " ".join(sentences(random, 150, 1_500)) if odd == "1 MB" else odd
    result = draft(write_csv(tmp_path / "t.csv", {"note": note, **{name: values[:200] for name, values in columns.items()}}))
    assert features(result)["note"]["encoder"] == "terms" and features(result)["note"]["length"] < 500
    assert table_settings(result)["options"] == {"header": True}


def read_at_most(most_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WHOLE_BYTES", "SAMPLE_BYTES"):
        monkeypatch.setattr(f"pipelines.init.tables.sample.{name}", most_bytes)


@pytest.mark.full
def test_texts_of_several_lines_are_read_where_the_first_bytes_end_inside_one(
    random: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large file, the beginning is read, since no line tells whether it begins inside quotes."""
    note = [text.replace(" ", "\r\n\r\n", 20) for text in sentences(random, 1_600, 60)]
    quoted = [f'"{text}, ""so it is"""' for text in note]
    path = write_csv(tmp_path / "t.csv", {"note": quoted, "kind": np.arange(1_600) % 3, "y": np.arange(1_600) % 2})
    assert Path(path).stat().st_size > 1.5 * HEAD_BYTES
    for most in (2**26, HEAD_BYTES):
        read_at_most(most, monkeypatch)
        result = draft(path)
        assert table_settings(result)["options"] == {"header": True, "multiLine": True}
        assert features(result)["note"]["encoder"] == "terms" and "max_quarantined" not in result.sections["source"]


@pytest.mark.parametrize(
    "kind", [pytest.param("lines", marks=pytest.mark.full), "one line", pytest.param("compressed", marks=pytest.mark.full)]
)
def test_a_first_record_longer_than_the_sample_is_read(
    kind: str, random: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = sentences(random, 800, 60)
    note[0] = " ".join(note * 2)
    assert len(note[0]) > 1.5 * HEAD_BYTES
    table = {"note": [f'"{text}, {text}"' for text in note], "kind": np.arange(800) % 3, "y": np.arange(800) % 2}
    path = write_csv(tmp_path / "t.csv", {name: values if kind == "one line" else [str(value).replace(" ", "\n") for value in values]
                                          for name, values in table.items()})  # fmt: skip
    if kind == "compressed":
        Path(f"{path}.gz").write_bytes(gzip.compress(Path(path).read_bytes()))
        path = f"{path}.gz"
    read_at_most(2**14, monkeypatch)
    result = draft(path)
    assert table_settings(result)["options"] == {"header": True, **({} if kind == "one line" else {"multiLine": True})}
    assert table_settings(result)["schema"] == "note string, kind long, y long" and "max_quarantined" not in result.sections["source"]


def test_small_files_are_read_whole_whatever_their_shares_and_large_ones_in_part(
    random: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two files, one has most of the bytes."""
    for name, rows in (("a", 3_000), ("b", 50)):
        write_csv(tmp_path / f"{name}.csv", {"x": random.normal(size=rows), "y": np.arange(rows) % 2})
    total = sum(path.stat().st_size for path in tmp_path.iterdir())
    monkeypatch.setattr("pipelines.init.tables.sample.SAMPLE_BYTES", total // 2)
    monkeypatch.setattr("pipelines.init.tables.sample.WHOLE_BYTES", total)
    table = find_table(str(tmp_path))
    assert table and table.is_complete and table.rows == 3_050
    monkeypatch.setattr("pipelines.init.tables.sample.WHOLE_BYTES", total - 1)
    table = find_table(str(tmp_path))
    assert table and not table.is_complete and table.rows == pytest.approx(3_050, rel=0.05)


def test_a_header_longer_than_a_piece_of_the_sample_is_read(
    random: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {f"a_column_of_a_name_that_is_rather_long_for_a_column_{number}": random.integers(0, 9, 4_000) for number in range(30)}
    path = write_csv(tmp_path / "t.csv", {**columns, "y": np.arange(4_000) % 2})
    read_at_most(2**16, monkeypatch)
    assert table_settings(draft(path))["options"] == {"header": True} and features(draft(path)).keys() == columns.keys()


def test_few_records_may_have_null_characters_which_etl_refuses(
    columns: dict[str, Values], random: np.random.Generator, tmp_path: Path
) -> None:
    note = [f"{text}\0" if number < 4 else text for number, text in enumerate(sentences(random, ROWS))]
    result = draft(write_csv(tmp_path / "t.csv", {"note": note, **columns}))
    assert features(result)["note"]["encoder"] == "terms" and result.sections["source"]["max_quarantined"] == 0.03
    with pytest.raises(SourceError, match="has bytes of zero, so it is no text"):
        draft(write_csv(tmp_path / "binary.csv", {"note": [f"{text}\0" for text in note], **columns}))


def test_few_texts_are_categories_whose_words_nothing_else_has(
    columns: dict[str, Values], random: np.random.Generator, tmp_path: Path
) -> None:
    """ETL refuses a text no term of which is in two texts."""
    result = draft(write_csv(tmp_path / "t.csv", {"note": [*sentences(random, 3, 12), *[""] * (ROWS - 3)], **columns}), "y")
    assert features(result)["note"] == "vocabulary"


def test_more_texts_than_a_pattern_names_are_named_without_one(random: np.random.Generator, tmp_path: Path) -> None:
    texts = {f"note{number}": sentences(random, 60) for number in range(101)}
    result = draft(write_csv(tmp_path / "t.csv", {**texts, "y": np.arange(60) % 2}))
    assert features(result).keys() == texts.keys()


def test_folders_of_published_splits_are_tables(columns: dict[str, Values], tmp_path: Path) -> None:
    for name in ("taxis-train/1.csv", "taxis-train/2.csv", "taxis-test/1.csv"):
        write_csv(tmp_path / name, columns)
    sections = draft(str(tmp_path)).sections
    assert {name: table["path"] for name, table in sections["source"]["tables"].items()} == {
        "train": f"{tmp_path}/taxis-train",
        "test": f"{tmp_path}/taxis-test",
    }
    assert sections["dataset"]["split"] == {"by": "split", "validation": 0.1}


@pytest.mark.parametrize("test", ["test", "eval", "T10k"])
def test_a_folder_of_train_and_test_is_two_tables(columns: dict[str, Values], tmp_path: Path, test: str) -> None:
    write_csv(tmp_path / "people-train.csv", columns)
    write_csv(tmp_path / f"people-{test}.csv", {**columns, "y": [f"{value}." for value in columns["y"]]})
    (tmp_path / "people.names").write_text("what the columns are")
    result = draft(str(tmp_path))
    assert list(result.sections["source"]["tables"]) == ["train", "test"]
    assert result.sections["dataset"]["split"] == {"by": "split", "validation": 0.1}
    assert "trim(TRAILING '.' FROM y) = 'yes' AS y" in result.sections["source"]["query"]


def test_a_test_without_the_target_is_not_used(columns: dict[str, Values], tmp_path: Path) -> None:
    write_csv(tmp_path / "train.csv", columns)
    write_csv(tmp_path / "test.csv", {name: values for name, values in columns.items() if name != "y"})
    result = draft(str(tmp_path))
    assert table_settings(result)["path"] == str(tmp_path / "train.csv") and "is not used" in "".join(result.assumptions)


def test_a_folder_of_equal_files_is_one_table(columns: dict[str, Values], tmp_path: Path) -> None:
    for number in range(3):
        write_csv(tmp_path / f"part-{number}.csv", columns)
    result = draft(str(tmp_path))
    assert table_settings(result)["path"] == str(tmp_path) and "1,200 rows" in result.introduction[0]


def test_json_lines_parquet_and_compressed_files(columns: dict[str, Values], tmp_path: Path) -> None:
    rows = [dict(zip(columns, map(str, row), strict=True)) for row in zip(*columns.values(), strict=True)]
    rows = [
        {**row, "a": float(row["a"]), "day": f"2020-01-{1 + number % 28:02}", "tags": ["x", "z"][: number % 3]}
        for number, row in enumerate(rows)
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = draft(str(tmp_path / "t.jsonl"))
    assert table_settings(result)["schema"] == "a double, color string, y string, day string, tags array<string>"
    assert features(result)["tags"]["encoder"] == "sequence" and "try_cast(day AS date)" in result.sections["source"]["query"]
    (tmp_path / "array.json").write_text(json.dumps(rows))
    assert table_settings(draft(str(tmp_path / "array.json")))["options"] == {"multiLine": True}
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet", row_group_size=50)
    assert table_settings(draft(str(tmp_path / "t.parquet"))) == {"format": "parquet", "path": str(tmp_path / "t.parquet")}
    plain = write_csv(tmp_path / "t.csv", columns)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(Path(plain).read_bytes()))
    assert features(draft(str(tmp_path / "t.csv.gz"))) == features(draft(plain))


def test_objects_of_json_become_columns_and_lists_of_them_are_said(columns: dict[str, Values], tmp_path: Path) -> None:
    """Also deeper ones, with names that are no plain ones, and NULL in place of an object."""
    lines = [
        {
            "user": {"age": number % 60, "home": {"zip code": f"0{number % 9}", "lat": number / 7}} if number % 9 else None,
            "items": [{"price": 1}],
            "counts": {f"item {number}": 1},
            "odd": number if number % 2 else [1],
            "y": columns["y"][number],
        }
        for number in range(ROWS)
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = draft(str(tmp_path / "t.jsonl"))
    assert table_settings(result)["schema"] == "user struct<age int, home struct<`zip code` string, lat double>>, y string"
    assert "user.age AS user_age, user.home.`zip code` AS user_home_zip_code" in result.sections["source"]["query"]
    assert list(features(result)) == ["user_age", "user_home_zip_code", "user_home_lat"]
    for column in ("items, of type array<struct>", "counts, of type map", "odd, of type mixed"):
        assert f"Left out: {column}, which no encoder takes" in result.comments["dataset", "features"]
    assert draft(str(tmp_path / "t.jsonl"), "user.home.lat").sections["dataset"]["target"] == {"user_home_lat": "standardize"}
    assert "objects are taken apart by the query, and the model takes their fields, such as user_age" in result.assumptions


def test_keys_of_json_that_differ_in_case_are_one_column_or_none(columns: dict[str, Values], tmp_path: Path) -> None:
    """One, if each object has one of them; ETL refuses objects that have both."""
    path = tmp_path / "t.jsonl"
    lines = [{"Age" if number % 5 else "age": number, "a": columns["a"][number], "y": columns["y"][number]} for number in range(ROWS)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = draft(str(path))
    assert table_settings(result)["schema"] == "Age int, a double, y string"
    assert "Age is also written age: both are one column" in result.assumptions
    both = [{"user": {"Age": number, "age": number % 7, "home": 1}, **line} for number, line in enumerate(lines)]
    path.write_text("".join(json.dumps({"AGE": 1, **line}) + "\n" for line in both))
    result = draft(str(path))
    assert table_settings(result)["schema"] == "user struct<home int>, a double, y string"
    assert "Left out: user_Age, of type repeated key" in result.comments["dataset", "features"]
    (doubt,) = (line for line in result.assumptions if line.startswith("AGE and age and Age are left out"))
    assert doubt.endswith("with other names in the file they are columns")


@pytest.mark.parametrize("name", ["t.csv", "t.txt", "t.dat"])
def test_json_of_any_name_is_json(columns: dict[str, Values], tmp_path: Path, name: str) -> None:
    rows = [{"a": columns["a"][number], "y": columns["y"][number]} for number in range(ROWS)]
    (tmp_path / name).write_text("\n\n" + "".join(json.dumps(row) + "\n" for row in rows))
    assert table_settings(draft(str(tmp_path / name))) == {"format": "json", "path": f"{tmp_path}/{name}", "schema": "a double, y string"}
    (tmp_path / name).write_text(json.dumps(rows, indent=1))
    assert table_settings(draft(str(tmp_path / name)))["options"] == {"multiLine": True}


def test_a_large_file_is_sampled_at_even_distances(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("".join(f"{number}\n" for number in range(200_000)))
    sample = sample_text(str(path), 2**16)
    numbers = [int(line) for line in sample.data.split()]
    assert numbers[0] == 0 and numbers[-1] > 190_000 and numbers == sorted(set(numbers)), "whole lines, each once"
    assert len(sample.data) <= 2**16 and sample.share == pytest.approx(len(sample.data) / path.stat().st_size)


def bad_data(folder: Path, columns: dict[str, Values]) -> dict[str, tuple[str, ...]]:
    """By what is wrong: the data, the target, and words of the error."""
    broken = [f"{number},red,yes\n" if number % 5 < 3 else f"{number}\n" for number in range(ROWS)]
    mixed = [f"{number},ü,yes\n".encode("iso-8859-1" if number == 300 else "utf-8") for number in range(ROWS)]
    texts = {
        "one row": "a,color,y\n1,red,yes\n",
        "no rows": "a,color,y\n",
        "empty": "",
        "broken": "".join(["a,color,y\n", *broken]),
        "no json": "{broken\n" * 100,
    }
    for name, text in texts.items():
        (folder / f"{name}.{'jsonl' if 'json' in name else 'csv'}").write_text(text)
    (folder / "text.txt").write_text("To be\nor not to be\n\nthat is the question\n" * 50)
    (folder / "mixed.csv").write_bytes(b"".join(mixed))
    sound = write_csv(folder / "sound.csv", {**columns, "same": [1] * ROWS, "name": [f"n{number}" for number in range(ROWS)]})
    write_csv(folder / "two/t.csv", columns)
    pq.write_table(pa.table({"a": [1]}), folder / "two/t.parquet")
    write_csv(folder / "unlike/a.csv", columns)
    write_csv(folder / "unlike/b.csv", {"b": columns["a"], "y": columns["y"]})
    return {
        "no such column": (sound, "colour", "which is no column of", "did you mean color?"),
        "constant target": (sound, "same", "is 1 in every row"),
        "a name as target": (sound, "name", "too many for classes"),
        "one row": (f"{folder}/one row.csv", "y", "has 1 row, too few"),
        "no rows": (f"{folder}/no rows.csv", "y", "no rows"),
        "empty": (f"{folder}/empty.csv", "y", "is empty"),
        "broken": (f"{folder}/broken.csv", "y", "40 % of the records are broken (line 5 has 1 value, and most have 3)"),
        "no json": (f"{folder}/no json.jsonl", "y", "100 % of the lines are no JSON objects"),
        "mixed": (f"{folder}/mixed.csv", "c3", "mixes encodings: most lines are UTF-8, and line 301"),
        "two kinds": (f"{folder}/two", "y", "files of different kinds, such as t.csv and t.parquet"),
        "unlike": (f"{folder}/unlike", "y", "have different columns, such as"),
        "a text": (f"{folder}/text.txt", "y", "neither a table nor a folder of a known kind"),
        "nothing": (f"{folder}/nothing", "y", "no such file or folder"),
    }


@pytest.mark.parametrize(
    "fault",
    [
        "no such column",
        "constant target",
        "a name as target",
        "one row",
        "no rows",
        "empty",
        "broken",
        "no json",
        "mixed",
        "two kinds",
        "unlike",
        "a text",
        "nothing",
    ],
)
def test_bad_data_get_one_clear_line(columns: dict[str, Values], tmp_path: Path, fault: str) -> None:
    data, target, *expected = bad_data(tmp_path, columns)[fault]
    with pytest.raises(LockstepError) as error:
        draft_config(Request(data, target, "toy"))
    assert all(words in str(error.value) for words in expected) and "\n" not in str(error.value)


def test_the_command_writes_a_valid_config_once(
    columns: dict[str, Values], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOCKSTEP_HOME", raising=False)
    write_csv(tmp_path / "raw/data.csv", columns)
    COMMANDS["init"]("lockstep init", ["raw/data.csv"])
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "assumed   the target is y, by its name; for another column, --target NAME"
    assert printed[-3] == "written   conf/raw.yaml" and "etl conf/raw.yaml" in printed[-2] and "tune conf/raw.yaml" in printed[-1]
    config = load("conf/raw.yaml")
    assert config.name == "raw" and config.source.tables["raw"].paths == ("raw/data.csv",)
    written = Path("conf/raw.yaml").read_bytes()
    with pytest.raises(ConfigError, match=r"conf/raw\.yaml exists, and may have been edited"):
        COMMANDS["init"]("lockstep init", ["raw/data.csv"])
    with pytest.raises(ConfigError, match="no column of"):
        COMMANDS["init"]("lockstep init", ["raw/data.csv", "--target", "z", "--output", "new/z.yaml"])
    assert Path("conf/raw.yaml").read_bytes() == written and not Path("new").exists()


def test_drafting_loads_no_heavy_library() -> None:
    code = "import sys, pipelines.init.drafting; print(*sorted({'pyspark', 'torch', 'ray', 'mlflow'} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == []


def test_folders_with_a_column_in_their_names_make_it(columns: dict[str, Values], tmp_path: Path) -> None:
    for year in (2020, 2021):
        place = tmp_path / "csv" / f"year={year}" / "part=a%20b"
        write_csv(place / "t.csv", columns)
        (tmp_path / "parquet" / f"year={year}").mkdir(parents=True)
        pq.write_table(pa.table({name: list(values) for name, values in columns.items()}), tmp_path / f"parquet/year={year}/t.parquet")
        write_csv(tmp_path / "plain" / str(year) / "t.csv", columns)
    for kind in ("csv", "parquet"):
        result = draft(str(tmp_path / kind))
        assert "try_cast(year AS long) AS year" in result.sections["source"]["query"] and "year" in features(result)
        assert "year is a column, by the names of the folders, such as year=2020" in result.assumptions
    table = find_table(str(tmp_path / "csv"))
    assert table and table.column("part").counts[0].tolist() == ["a b"] and [column.name for column in table.columns][-1] == "y"
    plain = draft(str(tmp_path / "plain"))
    assert "the folders of the files, such as 2020, are no column; to make one, rename them to NAME=2020 and so on" in plain.assumptions
    (tmp_path / "plain" / "2020").rename(tmp_path / "plain" / "year=2020")
    (tmp_path / "plain" / "2021").rename(tmp_path / "plain" / "year=2021")
    assert "year" in features(draft(str(tmp_path / "plain")))


def test_a_folder_of_which_no_file_is_in_the_sample_decides_too(tmp_path: Path) -> None:
    """Its value would be NULL without a word, were the column one of numbers."""
    codes = [*map(str, range(100, 165)), "A7"]
    for code in codes:
        write_csv(tmp_path / f"code={code}" / "t.csv", {"x": [1.5, 2.5, 3.5], "y": ["no", "yes", "no"]})
    paths = [str(file) for file in sorted(tmp_path.rglob("*.csv"))]
    assert not any("code=A7" in path for path in even_files(paths))
    table = find_table(str(tmp_path))
    assert table and (table.column("code").typed.ddl, table.column("code").typed.sql) == ("string", "")
    assert table.column("code").rows == table.column("x").rows


def test_files_that_are_hidden_are_said(columns: dict[str, Values], tmp_path: Path) -> None:
    for name in ("p1.csv", "_p2.csv"):
        write_csv(tmp_path / name, columns)
    line = "1 file is not read, since it or its folder begins with _ or a dot, such as _p2.csv; to read it, rename it"
    assert line in draft(str(tmp_path)).assumptions
    (tmp_path / "_p2.csv").rename(tmp_path / "p2.csv")
    assert draft(str(tmp_path)).introduction[0].startswith(f"{tmp_path}: {2 * ROWS} rows")


def test_a_test_file_without_values_of_the_target_is_not_used(columns: dict[str, Values], tmp_path: Path) -> None:
    write_csv(tmp_path / "train.csv", columns)
    write_csv(tmp_path / "test.csv", {**columns, "y": [""] * ROWS})
    result = draft(str(tmp_path))
    assert f"{tmp_path}/test.csv has no value of y, and is not used" in result.assumptions
    assert table_settings(result)["path"] == str(tmp_path / "train.csv") and "WHERE" not in result.sections["source"]["query"]
