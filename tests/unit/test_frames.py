"""Frames of every library become one table; one that no table can hold is refused in a line."""

import logging
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.errors import ConfigError, SourceError
from pipelines.notebook.frames import first_config, is_frame, plain_table, store_frame

FRAME = pd.DataFrame(
    {
        "number": [1.5, 2.0, None],
        "category": pd.Categorical(["x", "y", "x"]),
        "time": pd.to_datetime(["2020-01-01", "2020-06-01", None]).tz_localize("Europe/Berlin"),
        "text": ["p", None, "q"],
        "nullable": pd.array([1, None, 3], dtype="Int64"),
        "unsigned": np.array([1, 2, 3], "uint32"),
    }
)


def test_equal_rows_make_one_file_whatever_library_holds_them(tmp_path: Path) -> None:
    table = pa.Table.from_pandas(FRAME)
    chunks = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    indexed = FRAME.set_axis([7, 8, 9])
    files = {
        store_frame(frame, tmp_path)
        for frame in (FRAME, table, chunks, indexed, pa.RecordBatchReader.from_batches(table.schema, table.to_batches()))
    }
    assert len(files) == 1
    (path,) = files
    stored = pq.read_table(path)
    assert [str(field.type) for field in stored.schema] == ["double", "string", "timestamp[us, tz=UTC]", "string", "int64", "int64"]
    assert stored["time"][1].as_py().isoformat() == "2020-05-31T22:00:00+00:00"
    assert store_frame(FRAME.assign(number=[1.5, 2.0, 3.0]), tmp_path) != path


def test_what_duckdb_answers_is_a_frame() -> None:
    answer = duckdb.connect().sql("SELECT 1 AS a, 'x' AS b")
    assert is_frame(answer) and plain_table(answer).to_pylist() == [{"a": 1, "b": "x"}]


def test_nanoseconds_are_rounded_down() -> None:
    table = pa.table({"time": pa.array([-1, 1_999], pa.timestamp("ns"))})
    assert plain_table(table)["time"].cast(pa.int64()).to_pylist() == [-1, 1]


@pytest.mark.parametrize("kind", [pa.time32("s"), pa.time64("us"), pa.duration("ns"), pa.uint8()], ids=str)
def test_types_that_spark_lacks_become_long_integers(kind: pa.DataType) -> None:
    column = plain_table(pa.table({"a": pa.array([7, None], kind)}))["a"]
    assert column.type == pa.int64() and column.to_pylist() == [7, None]


def test_a_column_without_any_value_locks_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pipelines")
    stored = pq.read_table(store_frame(pd.DataFrame({"a": [1, 2], "nothing": [None, None]}), tmp_path))
    assert stored.column_names == ["a"] and "left out: nothing" in caplog.text


def test_an_index_is_left_out_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pipelines")
    assert plain_table(pd.DataFrame({"a": [1, 2]}, index=["x", "y"])).column_names == ["a"]
    assert "reset_index() makes it a column" in caplog.text


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({1: [1]}), "has a column called 1, which is no text; rename it"),
        (pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")])), r"called \('a', 'b'\), which is no text"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "has several columns called a; rename or drop all but one"),
        (pd.DataFrame({"mixed": [1, "x", None]}), "failed for column mixed .*; convert that column to one type, as by .astype"),
        (pa.table({"a": pa.array([(1, 1, 1)], pa.month_day_nano_interval())}), "column a of type month_day_nano_interval can be"),
        (pd.DataFrame({"a": []}), "has 0 rows and 1 columns; pass one with rows and columns"),
        (pd.DataFrame({"a": np.array([2**64 - 1], "uint64")}), r"column a of type uint64 has a value above 2\^63 - 1; convert it"),
    ],
)  # fmt: skip
def test_a_frame_that_no_table_can_hold_is_refused_in_a_line(frame: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=message) as error:
        store_frame(frame, tmp_path)
    assert "\n" not in str(error.value) and not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["rows.csv", Path("rows.csv")])
def test_a_path_is_no_frame(path: Any) -> None:
    assert not is_frame(path)


@pytest.mark.parametrize(
    ("frame", "line"),
    [
        (FRAME.assign(part=pd.cut(FRAME["number"], 2)), "column part of type extension<pandas.interval"),
        (FRAME.assign(part=pd.arrays.SparseArray([0.0, 0.0, 1.0])), "Sparse pandas data (column part) not supported"),
        (
            FRAME.rename(columns={"text": "a.b"}),
            "the frame has a column called a.b; a name has 1 to 90 characters, and none of . `",
        ),
        (FRAME.rename(columns={"text": "x" * 91}), "…; a name has 1 to 90 characters"),
        (FRAME.rename(columns={"text": " "}), "the frame has a column called  ; a name has 1 to 90"),
    ],
)
def test_columns_that_no_table_holds_are_one_line(frame: pd.DataFrame, line: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError) as error:
        store_frame(frame, tmp_path)
    assert line in str(error.value) and "\n" not in str(error.value) and not list(tmp_path.iterdir())


@pytest.mark.parametrize("data", [pd.Series([1]), np.zeros((2, 2)), {"a": [1]}, [1], None], ids=lambda data: type(data).__name__)
def test_what_is_neither_a_frame_nor_a_path_is_one_line(data: Any) -> None:
    with pytest.raises(SourceError, match=rf"data is of type {type(data).__name__}; pass a path, or a frame, as by pandas.DataFrame"):
        is_frame(data)


@pytest.mark.parametrize("feature", [[0.5, 0.25] * 50, [f"word word{number}" for number in range(100)]], ids=["number", "text"])
def test_a_task_with_rates_of_its_own_has_none_of_the_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, feature: list[Any]) -> None:
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "lightgbm", None)  # the draft has a network
    frame = pd.DataFrame({"a": feature, "b": np.arange(100) % 7, "left": ["yes", "no"] * 50})
    drafted, chosen = (first_config(frame, "left", {}, "", task).train for task in (None, "trees"))
    assert (chosen.lr, chosen.epochs, chosen.workers) == (0.05, 20, drafted.workers) and drafted.lr != chosen.lr
    assert first_config(frame, "left", {"task.learning_rate": 0.5}, "", "trees").train.lr == 0.5
    assert first_config(frame, "left", {"task.kind": "trees"}, "", None).train == chosen
    with pytest.raises(ConfigError, match=r"--train\.lr: has no effect while train\.strategy is boosting; set task\.learning_rate, or"):
        first_config(frame, "left", {"train.lr": 0.5}, "", "trees")
