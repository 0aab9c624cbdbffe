"""`lockstep init` for tables: row numbers and keys, rows that repeat, and groups, which the data decide and not names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets
from drafts import draft_config

from pipelines.config.load import parse
from pipelines.config.reading import from_yaml
from pipelines.init.draft import Draft, Request, yaml_text

ROWS = 1_000


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def draft(table: pd.DataFrame, path: Path, **settings: Any) -> Draft:
    """The draft of the table as CSV, which is a valid config."""
    path.write_text(table.to_csv(**{"index": False, **settings}))
    result = draft_config(Request(str(path), "y", "toy"))
    parse(from_yaml(yaml_text(result)), "toy.yaml")
    return result


def plain_table(random: np.random.Generator, rows: int = ROWS) -> pd.DataFrame:
    numbers = random.normal(size=(rows, 2)).round(4)
    return pd.DataFrame({"a": numbers[:, 0], "b": numbers[:, 1], "color": random.choice(["red", "green"], rows), "y": numbers.sum(1)})


def find_assumption(result: Draft, text: str) -> str:
    return next((line for line in result.assumptions if text in line), "")


@pytest.mark.parametrize(
    "name, start, step, is_shuffled",
    [("", 0, 1, False), ("Unnamed: 0", 0, 1, True), ("id", 1, 1, False), ("z", 1_000_001, 1, True), ("z", 5, 10, False)],
)
def test_a_row_number_is_neither_key_nor_feature(
    name: str, start: int, step: int, is_shuffled: bool, random: np.random.Generator, tmp_path: Path
) -> None:
    numbers = start + step * np.arange(ROWS)
    table = plain_table(random)
    table.insert(0, name, random.permutation(numbers) if is_shuffled else numbers)
    result = draft(table, tmp_path / "t.csv")
    column = {"": "row", "Unnamed: 0": "Unnamed_0"}.get(name, name)
    assert "key" not in result.sections["dataset"] and list(result.sections["dataset"]["features"]) == ["a", "b", "color"]
    assert f"Left out: {column}, a number of the row" in result.comments["dataset", "features"]
    assert result.sections["source"]["query"].startswith(f"SELECT * EXCEPT ({column})")


def test_numbers_that_only_look_like_row_numbers_stay(random: np.random.Generator, tmp_path: Path) -> None:
    """Years, measured whole numbers that repeat or leave most numbers out, and numbers with fractions."""
    table = plain_table(random, 300)
    table = table.assign(
        year=np.arange(1_720, 2_020),
        weight=random.integers(0, 300, 300),
        people=random.permutation(100_000)[:300],
        half=np.arange(300) + 0.5,
    )
    assert {"year", "weight", "people", "half"} <= draft(table, tmp_path / "t.csv").sections["dataset"]["features"].keys()


@pytest.mark.parametrize("name", [None, "code"])
def test_rows_that_repeat_but_for_their_number_have_no_key(name: str | None, random: np.random.Generator, tmp_path: Path) -> None:
    """As pandas writes them, and with a code that names each row."""
    table = plain_table(random)
    table = pd.concat([table, table.iloc[:430]]).sample(frac=1, random_state=0).reset_index(drop=True)
    if name:
        table.insert(0, name, [f"case {number * 7919 % 99_991:05}" for number in range(len(table))])
    result = draft(table, tmp_path / "t.csv", index=not name)
    assert "key" not in result.sections["dataset"] and f"EXCEPT ({name or 'row'})" in result.sections["source"]["query"]
    assert find_assumption(result, "30 % of the rows repeat an earlier one").endswith("equal rows go to one split")


def test_a_name_of_each_row_is_the_key_of_rows_that_differ(random: np.random.Generator, tmp_path: Path) -> None:
    table = plain_table(random)
    table.insert(0, "code", [f"case {number * 7919 % 99_991:05}" for number in range(ROWS)])
    result = draft(table, tmp_path / "t.csv")
    assert result.sections["dataset"]["key"] == ["code"] and "query" not in result.sections["source"]


def test_a_row_number_tells_rows_apart_that_must_repeat(random: np.random.Generator, tmp_path: Path) -> None:
    """Twelve different rows among a thousand: by their values alone, no row of the test would be like one of training."""
    table = pd.DataFrame({name: random.choice(values, ROWS) for name, values in {"a": list("xyz"), "b": [0, 1], "y": [0, 1]}.items()})
    assert draft(table, tmp_path / "t.csv", index=True).sections["dataset"]["key"] == ["row"]


def panel(random: np.random.Generator, persons: int, years: int) -> pd.DataFrame:
    """Persons in several years, each with habits of their own, in any order."""
    numbers = np.repeat(random.permutation(10 * persons)[:persons], years)
    habit, school = (np.repeat(random.normal(size=persons), years) for _ in range(2))
    hours = (40 + 5 * habit + random.normal(size=len(numbers)) * 3).round()
    table = {"nr": numbers, "year": np.tile(np.arange(years) + 1_980, persons), "school": (school * 3 + 12).round(), "hours": hours}
    y = habit + 0.2 * school + random.normal(size=len(numbers)) * 0.5
    return pd.DataFrame({**table, "weather": random.normal(size=len(numbers)).round(2), "y": y.round(3)}).sample(frac=1, random_state=1)


@pytest.mark.parametrize("kind", ["number", "text", "repeated rows"])
@pytest.mark.parametrize("persons, years", [(300, 8), (60, 40), pytest.param(9_000, 4, marks=pytest.mark.full)])
def test_a_column_whose_rows_resemble_each_other_is_a_group(
    persons: int, years: int, kind: str, random: np.random.Generator, tmp_path: Path
) -> None:
    table = panel(random, persons, years)
    if kind == "text":
        table["nr"] = [f"n{number}" for number in table["nr"]]
    if kind == "repeated rows":
        table = pd.concat([table, table.iloc[:100]])
    result = draft(table, tmp_path / "t.csv")
    assert result.sections["dataset"]["split"]["group"] == "nr" and "nr" not in result.sections["dataset"]["features"]
    assert "the intra-class correlation of the median column is 0." in find_assumption(result, "rows with equal nr resemble each other")


def plain_tables(random: np.random.Generator) -> Mapping[str, pd.DataFrame]:
    """Numbers and categories of many values that are no groups."""
    age, zone, rows = random.integers(18, 90, 2_000), random.integers(0, 150, 2_000), 2_000
    salary = (age * 50 + random.normal(size=rows) * 300).round()
    measured = pd.DataFrame({"age": age, "salary": salary, "score": (age / 9).round(1), "y": salary + age * 3})
    zones = pd.DataFrame({"zone": [f"zone {number}" for number in zone], "fare": random.normal(size=rows).round(2), "y": zone % 7 + age})
    repeated = pd.concat([measured.iloc[:600]] * 2)
    shuffled = panel(random, 250, 8).assign(nr=lambda table: random.permutation(table["nr"]))
    phase = random.integers(0, 120, rows)
    periodic = pd.DataFrame({"phase": phase, "b": random.normal(size=rows).round(2), "y": np.sin(phase * 2.1).round(3)})
    tables = {"measured": measured, "zones": zones, "repeated": repeated, "shuffled": shuffled, "periodic": periodic}
    return {**tables, "one feature": periodic.drop(columns="b")}


@pytest.mark.parametrize("name", ["measured", "zones", "repeated", "shuffled", "periodic", "one feature"])
def test_measured_numbers_and_categories_are_no_groups(name: str, random: np.random.Generator, tmp_path: Path) -> None:
    result = draft(plain_tables(random)[name], tmp_path / "t.csv")
    assert "group" not in result.sections["dataset"]["split"] and not find_assumption(result, "resemble")


def test_a_panel_of_three_columns_has_a_group(random: np.random.Generator, tmp_path: Path) -> None:
    """Each subject on the same days: the day differs inside of every group, as it was planned."""
    table = panel(random, 60, 10)[["nr", "year", "y"]]
    assert draft(table, tmp_path / "t.csv").sections["dataset"]["split"]["group"] == "nr"


@pytest.mark.parametrize("name", ["breast_cancer", "wine", "diabetes", "iris", "digits"])
def test_no_column_of_a_plain_table_is_a_group(name: str, tmp_path: Path) -> None:
    table = getattr(sklearn.datasets, f"load_{name}")(as_frame=True).frame.rename(columns={"target": "y"})
    result = draft(table, tmp_path / "t.csv", index=True)
    assert "group" not in result.sections["dataset"]["split"] and "key" not in result.sections["dataset"]


@pytest.mark.parametrize(
    "target, metric", [("left", "AUC of 0.99"), ("reason", "share of explained errors of 1.000"), ("cost", "R² of 0.99")]
)
def test_a_column_that_gives_the_target_away_is_said_and_stays(
    target: str, metric: str, random: np.random.Generator, tmp_path: Path
) -> None:
    """A duration that only ends early for those who left, a code of the reason, and a bill."""
    has_left = random.random(ROWS) < 0.3
    weeks = np.where(has_left & (random.random(ROWS) < 0.99), random.integers(1, 52, ROWS), 52)
    table = plain_table(random).drop(columns="y").assign(weeks=weeks)
    if target != "left":
        table["weeks"] = random.integers(0, 40, ROWS)
    outputs = {
        "left": np.where(has_left, "yes", "no"),
        "reason": np.array(["moved", "ill", "bored"])[table["weeks"] % 3],
        "cost": table["weeks"] ** 2 + random.normal(size=ROWS).round(2),
    }
    result = draft(table.assign(y=outputs[target]), tmp_path / "t.csv")
    assert f"weeks alone tells the target, with a held-out {metric}" in find_assumption(result, "alone tells")
    assert "remove dataset.features.weeks" in find_assumption(result, "alone tells") and "weeks" in result.sections["dataset"]["features"]


def test_what_is_said_of_a_column_of_very_many_names_no_feature_that_the_draft_lacks(random: np.random.Generator, tmp_path: Path) -> None:
    """One pattern stands for all of them, and its encoder chooses what NULL becomes."""
    table = plain_table(random).drop(columns="y").assign(weeks=random.integers(0, 40, ROWS))
    noise = pd.DataFrame(random.normal(size=(ROWS, 110)).round(2), columns=[f"noise{number}" for number in range(110)])
    noise.loc[::50, "noise0"] = -999
    cost = table["weeks"] ** 2 + random.normal(size=ROWS).round(2)
    result = draft(pd.concat([table, noise, cost.rename("y")], axis=1), tmp_path / "t.csv")
    assert list(result.sections["dataset"]["features"])[-1].startswith("*")
    assert "so leave weeks out in source.query: SELECT * EXCEPT (weeks) then" in find_assumption(result, "alone tells")
    assert find_assumption(result, "-999 of noise0").endswith("AS noise0 in source.query")
    values = from_yaml(yaml_text(result))
    values["source"]["query"] = "SELECT * EXCEPT (weeks) FROM toy"  # the remedy
    parse(values, "toy.yaml")


def test_a_good_feature_beside_others_gives_nothing_away(random: np.random.Generator, tmp_path: Path) -> None:
    table = plain_table(random)
    assert not find_assumption(draft(table, tmp_path / "sum.csv"), "alone")
    easy = table.assign(y=np.where(random.random(ROWS) < 0.95, table["a"] > 0, table["a"] <= 0).astype(int))
    assert not find_assumption(draft(easy, tmp_path / "easy.csv"), "alone")
