"""Batch prediction on the driver: its folder, what names a snapshot, and which expectations hold for rows to predict."""

import os
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from pipelines.config import parse
from pipelines.data.features.raw import python_rows
from pipelines.data.rowwise.translate import condition_columns
from pipelines.data.versions import storage
from pipelines.errors import DatasetError
from pipelines.serving.batch import predict_tables
from pipelines.serving.batch.fetched_model import _files_digest
from pipelines.serving.batch.input_tables import applicable_expectations
from pipelines.serving.batch.predictions_manifest import open_predictions, sweep

OLD = 1_000_000_000
"""A time of long ago."""


def write_old(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("kept")
    for path in (file, file.parent):
        os.utime(path, (OLD, OLD))
    return file


def test_only_dead_attempts_of_snapshots_are_removed(tmp_path: Path) -> None:
    user_files = [
        write_old(tmp_path / name) for name in ("raw/data-2019/x.parquet", "raw/rows-old.parquet", "0123456789ab-copy/data-a/x", ".gitkeep")
    ]
    dead = write_old(tmp_path / "0123456789ab" / "data-a" / "x.parquet")
    filesystem, folder = storage.locate(str(tmp_path))
    sweep(filesystem, folder)
    assert all(file.read_text() == "kept" for file in user_files) and not dead.exists()


def test_other_files_in_its_folder_do_not_hide_that_there_are_none(tmp_path: Path) -> None:
    write_old(tmp_path / ".gitkeep")
    with pytest.raises(DatasetError, match=r"holds no predictions; run jobs/predict.py first"):
        open_predictions(str(tmp_path))


def test_a_model_of_equal_weights_with_other_settings_is_another_one(tmp_path: Path) -> None:
    digests = []
    for config in ("1", "2"):
        (tmp_path / "digests.json").write_text(f'{{"model": "abab", "files": {{"artifacts/config.json": "{config}"}}}}')
        digests.append(_files_digest(tmp_path))
    assert digests[0] != digests[1]


def test_predictions_by_a_query_are_of_the_engine_that_ran_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {"t": {"format": "csv", "path": "t.csv", "schema": "x int, y int"}}
    dataset = {"path": "data", "features": {"x": "identity"}, "target": {"y": "binary"}}
    config = parse({"name": "t", "source": {"tables": tables}, "dataset": dataset, "task": {"kind": "tabular"}}, "t")
    source: Any = SimpleNamespace(config=config, tables=("t",))
    settings: dict[str, list[Any]] = {"query": [], "rows": []}
    for version, java in (("4.3.0", "17"), ("4.3.0", "21"), ("5.0.0", "21")):
        monkeypatch.setattr(predict_tables, "ambient_identity", lambda spark, java=java: {"java": java})
        for takes, values in settings.items():
            model: Any = SimpleNamespace(takes=takes, files_digest="ab")
            spark: Any = SimpleNamespace(version=version)
            values.append(predict_tables._settings(spark, source, model, ()))
    first, second, third = settings["query"]
    assert first != second and second != third, "an engine may compute other values"
    assert settings["rows"][0] == settings["rows"][1] == settings["rows"][2], "the model itself applies its query"


@pytest.mark.parametrize(
    ("condition", "columns"),
    [
        ("quantity > 0", {"quantity"}),
        ("`the price` BETWEEN 0 AND y", {"the price", "y"}),
        ("label = 'y'", {"label"}),
        ("load < 1e9", {"load"}),  # which begins a statement as well
        ("person.age > 0", {"person", "age"}),
        ("MAP(1, y)[", {"MAP", "1", "y"}),
    ],
)
def test_columns_of_a_condition(condition: str, columns: set[str]) -> None:
    assert condition_columns(condition) == columns


def test_an_expectation_is_dropped_only_if_it_reads_the_target() -> None:
    expect = {"some": "quantity > 0", "target": "Y IN (0, 1)", "both": "quantity > y", "text": "kind <> 'y'"}
    values: dict[str, Any] = {
        "name": "t",
        "source": {"tables": {"t": {"format": "csv", "path": "t.csv", "schema": "quantity int, kind string, y int"}}, "expect": expect},
        "dataset": {"path": "data", "features": {"quantity": "identity"}, "target": {"y": "binary"}},
        "task": {"kind": "tabular"},
    }
    assert set(applicable_expectations(parse(values, "t"))) == {"some", "text"}


def test_times_that_python_lacks_are_text() -> None:
    times = pa.array([0, 1_700_000_000_000_000_000], pa.timestamp("us", "UTC"))
    nested = pa.array([{"at": value} for value in (0, 1_700_000_000_000_000_000)], pa.struct([("at", pa.timestamp("us"))]))
    first, second = python_rows(pa.record_batch([times, nested, pa.array([1, 2])], ["time", "nested", "number"]))
    assert first == {"time": datetime(1970, 1, 1, tzinfo=UTC), "nested": {"at": datetime(1970, 1, 1)}, "number": 1}
    assert isinstance(second["time"], str) and isinstance(second["nested"], str) and second["number"] == 2
