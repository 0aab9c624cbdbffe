"""Drafts of tables whose names and values SQL, or a tensor column, would take for something else."""

import json
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlglot
from drafts import draft_config

from pipelines.config.load import parse
from pipelines.config.reading import from_yaml
from pipelines.init.draft import Draft, Request, yaml_text
from pipelines.init.tables.header import tensor_column_names
from pipelines.init.tables.sql import renaming_query, sql_name

ROWS = 400
NUMBERS = [number * 0.37 % 5 - 1 for number in range(ROWS)]


def draft(path: Path, target: str, name: str = "toy") -> Draft:
    """The draft of the file, which is a valid config."""
    result = draft_config(Request(str(path), target, name))
    parse(from_yaml(yaml_text(result)), "toy.yaml")
    return result


def write_parquet(path: Path, columns: Mapping[str, Sequence[Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(dict(columns)), path)
    return path


def query_rows(query: str, **tables: Path) -> dict[str, list[Any]]:
    """The columns that a drafted query gives, by DuckDB."""
    tree = sqlglot.parse_one(query, dialect="spark")
    for table in list(tree.find_all(sqlglot.exp.Table)):
        table.replace(sqlglot.exp.Table(this=sqlglot.exp.to_identifier(str(tables[table.name]), quoted=True)))
    columns: dict[str, list[Any]] = duckdb.sql(tree.sql(dialect="duckdb")).arrow().read_all().to_pydict()
    return columns


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ((1_000_001, 1_000_002), pa.int64()),
        ((20230101, 20240101), pa.int32()),
        ((2**60, 2**60 + 1), pa.int64()),
        ((33.333333, 66.666667), pa.float64()),
        ((0.1, 0.2), pa.float32()),
        ((1e300, 1e22), pa.float64()),
        (("{a}", "b"), pa.string()),
        (("it's", "\\"), pa.string()),
    ],
)
def test_a_target_of_two_values_is_true_where_its_reason_says(tmp_path: Path, values: tuple[Any, Any], kind: pa.DataType) -> None:
    target = pa.array([values[number % 4 == 0] for number in range(ROWS)], kind)
    path = write_parquet(tmp_path / "t.parquet", {"a": NUMBERS, "y": target})
    query = draft(path, "y").sections["source"]["query"]
    assert sorted(map(query_rows(query, toy=path)["y"].count, (True, False))) in ([ROWS // 4, 3 * ROWS // 4],)


@pytest.mark.parametrize("name", ["churn-v2", "2024", "order", "churn.v2"])
def test_a_pipeline_may_have_a_name_that_is_none_in_sql(tmp_path: Path, name: str) -> None:
    path = write_parquet(tmp_path / "t.parquet", {"a": NUMBERS, "y": ["yes", "no"] * (ROWS // 2)})
    source = draft(path, "y", name).sections["source"]
    (table,) = source["tables"]
    assert table == name.replace(".", "_") and len(query_rows(source["query"], **{table: path})["y"]) == ROWS


@pytest.mark.parametrize("ending", ["parquet", "json"])
def test_columns_whose_names_no_tensor_has_are_renamed_by_the_query(tmp_path: Path, ending: str) -> None:
    columns = {"Sepal.Length": NUMBERS, "a/b": NUMBERS[::-1], "Sepal_Length": NUMBERS, "size in {cm}": NUMBERS, "y": [0, 1] * (ROWS // 2)}
    path = tmp_path / f"t.{ending}"
    if ending == "json":
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        write_parquet(path, columns)
    source = draft(path, "y").sections["source"]
    assert query_rows(source["query"], toy=path).keys() == {"Sepal_Length", "Sepal_Length_2", "a_b", "size in {cm}", "y"}


def test_what_the_query_adds_has_a_name_of_its_own(tmp_path: Path) -> None:
    days = [f"2024-{number % 12 + 1:02}-{number % 28 + 1:02}" for number in range(ROWS)]
    columns = {"date": pa.array(days).cast(pa.date32()), "date_month": NUMBERS, "split": NUMBERS, "y": [0, 1] * (ROWS // 2)}
    paths = {name: write_parquet(tmp_path / f"files/{name}.parquet", columns) for name in ("train", "test")}
    sections = draft(tmp_path / "files", "y").sections
    rows = query_rows(sections["source"]["query"], **paths)
    assert sections["dataset"]["split"]["by"] == "split_2" and set(rows["split_2"]) == {"train", "test"} and rows["split"] == NUMBERS * 2
    assert {"date_month", "date_month_2"} <= sections["dataset"]["features"].keys() and max(rows["date_month"]) < 5


def test_a_target_has_its_name_in_the_files(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "t.parquet", {"a_b": ["red", "blue"] * 200, "x": NUMBERS, "a.b": ["yes", "no", "no", "no"] * 100})
    assert draft(path, "a.b").sections["dataset"]["target"] == {"a_b_2": "binary"}
    assert draft(path, "a_b").sections["dataset"]["target"] == {"a_b": "binary"}


def test_rows_whose_target_is_not_a_number_are_left_out(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "t.parquet", {"a": NUMBERS, "y": [float("nan"), 1.0, 2.0, 1.0] * 100})
    assert draft(path, "y").sections["source"]["query"].endswith("WHERE y IS NOT NULL AND NOT isnan(y)")


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64(), pa.timestamp("us")])
def test_rows_in_order_of_days_are_split_by_time(tmp_path: Path, kind: pa.DataType) -> None:
    days = pa.array([date(2020, 1, 1) + timedelta(number) for number in range(ROWS)]).cast(kind)
    split = draft(write_parquet(tmp_path / "t.parquet", {"day": days, "a": NUMBERS, "y": [0, 1] * 200}), "y").sections["dataset"]["split"]
    assert split["time"] == "day" and split["validation"].startswith("2020-11-16")


def test_an_expectation_of_an_odd_column_has_a_plain_name(tmp_path: Path) -> None:
    prices = [-1.0 if number == 7 else 3.5 + number for number in range(ROWS)]
    discounts = [-2.0 if number == 9 else number * 7.3 % 50 for number in range(ROWS)]
    result = draft(write_parquet(tmp_path / "t.parquet", {"price_$": prices, "price_%": discounts, "y": NUMBERS}), "y")
    assert result.sections["source"]["expect"] == {"plausible price__": "`price_$` >= 0", "plausible price___2": "`price_%` >= 0"}


def test_names_are_changed_only_where_they_must_be() -> None:
    assert tensor_column_names(["größe", "a b", "a.b", "A_B", "a_b_2", "", "x" * 101, "x" * 100 + "."]) == [
        *("größe", "a b", "a_b_3"),
        *("A_B", "a_b_2", "column", "x" * 80, "x" * 80 + "_2"),
    ]
    assert renaming_query({"a": "a"}) == "*" and renaming_query({"a`.b": "a_b"}) == "SELECT `a``.b` AS a_b FROM {}"
    assert sql_name("where") == "`where`" and sql_name("where_") == "where_"
