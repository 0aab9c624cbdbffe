"""A cleaning of versions that increments made: none loses a part, and a chain goes once an ETL of all rows has replaced it."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from stores import new_store

from pipelines import api
from pipelines.config import Config, parse
from pipelines.config.dataset.dataset import Keep
from pipelines.data.loader.reader import Reader
from pipelines.data.versions.versions import open_version
from pipelines.etl.run import run

ROWS = 60
"""Rows that come each day."""


def config_of_days(folder: Path) -> Config:
    return parse(
        {
            "name": "days",
            "source": {"tables": {"days": {"format": "parquet", "path": f"{folder}/raw"}}},
            "dataset": {
                "path": f"{folder}/data",
                "key": "id",
                "features": {"age": "standardize"},
                "target": {"left": "binary"},
                "keep": {"versions": 1, "days": 0},
            },
            "task": {"kind": "tabular"},
            "tracking": {"uri": new_store(folder)},
        },
        "days",
    )


def write_day(folder: Path, number: int) -> None:
    (folder / "raw").mkdir(exist_ok=True)
    values = np.random.default_rng(number).standard_normal(ROWS)
    rows = {"id": np.arange(ROWS) + number * ROWS, "age": 40 + 10 * values, "left": values > 0}
    pq.write_table(pa.table(rows), folder / f"raw/day-{number}.parquet")


def list_versions(folder: Path) -> set[str]:
    return {path.name for path in (folder / "data").iterdir()}


@pytest.mark.full
def test_increments_stay_until_an_etl_of_all_rows_replaces_them(tmp_path: Path, spark: SparkSession) -> None:
    config = config_of_days(tmp_path)
    write_day(tmp_path, 0)
    chain = [run(config)]
    for number in (1, 2):
        write_day(tmp_path, number)
        chain.append(run(config, parent_name="previous"))
    assert [item.goes for item in api.clean(config, yes=True).items] == [False] * 3
    version = open_version(config.dataset.path, config.data_identity)
    reader = Reader(version, "train")
    assert sum(len(reader.read(number)["age"]) for number in range(len(reader.groups))) == version.rows("train")
    full = run(config)
    relaxed = config.model_copy(update={"dataset": config.dataset.model_copy(update={"keep": Keep(versions=9)})})
    assert run(relaxed).version == full.version and not any(item.goes for item in api.clean(relaxed, yes=True).items)
    cleaning = api.clean(config, yes=True)
    assert {item.name for item in cleaning.items if item.goes} == {manifest.version for manifest in chain} and cleaning.bytes > 0
    assert list_versions(tmp_path) == {full.version}
    write_day(tmp_path, 3)
    assert run(config, parent_name="previous").parent == full.version
    assert api.clean(config, yes=True).bytes == 0
