"""`auto` in the ETL: files, partitions and the order of rows choose nothing, and the choice is as good as written by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from stores import new_store

from pipelines.config import Config, parse
from pipelines.data.versions.manifest import Manifest
from pipelines.data.versions.versions import open_version
from pipelines.errors import ConfigError
from pipelines.etl import auto_features
from pipelines.etl.run import run

ROWS = 2_000


def rows() -> pa.Table:
    random = np.random.default_rng(11)
    label = random.integers(0, 2, ROWS)
    flag = random.random(ROWS) < 0.001
    flag[0] = True
    return pa.table(
        {
            "normal": random.normal(size=ROWS),
            "spent": np.where(random.random(ROWS) < 0.4, 0, random.lognormal(0, 4, ROWS)),
            "word": random.choice(["red", "green", "blue"], ROWS),
            "rare_flag": flag.astype(np.int32),
            "rarely_missing": pa.array([None if place == 7 else float(place % 91) for place in range(ROWS)]),
            "constant": np.full(ROWS, 3.5),
            "place": np.arange(ROWS) + 1000,
            "copy": np.where(label == 1, "yes", "no"),
            "label": label,
        }
    )


def config(folder: Path, uri: str, features: Any, data: str) -> Config:
    return parse(
        {
            "name": "auto",
            "source": {"tables": {"raw": {"format": "parquet", "path": str(folder / data)}}},
            "dataset": {"path": str(folder / f"dataset-{data}"), "features": features, "target": {"label": "binary"}},
            "task": {"kind": "tabular"},
            "tracking": {"uri": uri},
        },
        "test",
    )


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return new_store(tmp_path_factory.mktemp("tracking"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows in one file, and in another order in five."""
    folder, table = tmp_path_factory.mktemp("auto"), rows()
    for name, files in (("one", 1), ("five", 5)):
        (folder / name).mkdir()
        order = np.random.default_rng(files).permutation(ROWS) if files > 1 else np.arange(ROWS)
        for number, part in enumerate(np.array_split(order, files)):
            pq.write_table(table.take(pa.array(part)), folder / name / f"{number}.parquet", row_group_size=100)
    return folder


@pytest.fixture(scope="module")
def manifest(folder: Path, uri: str, spark: SparkSession) -> Manifest:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auto_features, "LEAST_ROWS", 300)
        patch.setattr(auto_features, "CELLS", 300)
        return run(config(folder, uri, {"*": "auto"}, "one"))


def test_columns_are_chosen_by_all_rows(manifest: Manifest) -> None:
    encoders = {name: fitted.feature for name, fitted in manifest.encoders.items()}
    assert encoders["rarely_missing"]["impute"] in ("mean", "median"), "the sample need not have the row without a value"
    assert "rare_flag" in encoders, "nearly all rows have one value, and not all"
    assert manifest.auto_left_out.keys() == {"constant", "place", "copy"}
    assert encoders["spent"]["encoder"] == "log1p" and "zeros" in manifest.auto_reasons["spent"]


def test_p6_files_and_the_order_of_rows_choose_nothing(
    manifest: Manifest, folder: Path, uri: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_features, "LEAST_ROWS", 300)
    monkeypatch.setattr(auto_features, "CELLS", 300)
    monkeypatch.setattr(auto_features, "_MARGIN", 0.1)  # so that the first look finds too few rows
    other = run(config(folder, uri, {"*": "auto"}, "five"))
    assert other.digest == manifest.digest and other.auto_left_out == manifest.auto_left_out


def test_the_choice_written_by_hand_makes_the_same_dataset(manifest: Manifest, folder: Path, uri: str, spark: SparkSession) -> None:
    by_hand = {name: fitted.feature for name, fitted in manifest.encoders.items() if fitted.column.role == "feature"}
    assert run(config(folder, uri, by_hand, "one")).digest == manifest.digest


def test_training_opens_the_version_of_the_same_patterns(manifest: Manifest, folder: Path, uri: str) -> None:
    same, other = (config(folder, uri, features, "one") for features in ({"*": "auto"}, {"normal": "auto"}))
    assert open_version(same.dataset.path, same.data_identity).digest == manifest.digest
    with pytest.raises(Exception, match=r"none made from this config"):
        open_version(other.dataset.path, other.data_identity)


def test_a_pattern_that_matches_nothing_is_refused_before_any_row_is_read(folder: Path, uri: str, spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="did you mean normal"):
        run(config(folder, uri, {"normel*": "standardize"}, "one"))
