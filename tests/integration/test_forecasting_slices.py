"""conf/etth1.yaml on a slice: windows that keep to their split, a forecast that is served as it was evaluated."""

from collections.abc import Iterator
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from pyspark.sql import SparkSession
from raw import FOLDER, raw
from stores import new_store

from pipelines.config import Config, load
from pipelines.data.features import restore_encoder
from pipelines.data.loader import Loader, Order
from pipelines.data.loader.order import shard_range
from pipelines.data.versions.schema import to_numpy
from pipelines.data.versions.versions import Version, open_version
from pipelines.etl.run import run
from pipelines.launch.training_run import Result, train

CONF = Path(__file__).parents[2] / "conf/etth1.yaml"
STEPS, HORIZON, MONTH = 336, 96, 60
"""Months of 60 hours in the place of 720."""


@pytest.fixture(scope="module")
def hours() -> np.ndarray:
    """The published file's values, shape (hours, series)."""
    return pd.read_csv(raw("etth", "ETTh1.csv")).drop(columns="date").to_numpy()


def month_start(month: int, hours: int = MONTH) -> str:
    return str(np.datetime64("2016-07-01T00") + month * hours).replace("T", " ") + ":00:00"


def windows(hours: np.ndarray, start: int, stop: int) -> np.ndarray:
    """All windows whose predicted hours are in [start, stop), shape (windows, STEPS + HORIZON, series), by time."""
    rows = sliding_window_view(hours, STEPS + HORIZON, axis=0).swapaxes(1, 2)
    return rows[max(start - STEPS, 0) : stop - STEPS - HORIZON + 1]


def test_the_published_scaling_and_the_baseline_to_the_digit(hours: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(CONF).dataset.encoders["future"]
    year = hours[: 12 * 720]
    np.testing.assert_allclose(settings.mean, year.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(settings.deviation, year.std(axis=0), rtol=1e-12)
    scaled = windows((hours - settings.mean) / settings.deviation, 16 * 720, 20 * 720)
    errors = scaled[:, STEPS:] - scaled[:, STEPS - 1 : STEPS]
    assert (len(scaled), f"{(errors**2).mean():.3f}", f"{abs(errors).mean():.3f}") == (2_785, "1.294", "0.713")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Config]:
    home = tmp_path_factory.mktemp("etth1")
    raw("etth")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCKSTEP_RAW", str(FOLDER))
        query = load(CONF).source.query.replace(month_start(20, 720)[:10], month_start(20))
        splits = {"dataset.split.validation": month_start(12), "dataset.split.test": month_start(16)}
        places = {"dataset.path": str(home / "data"), "train.storage": str(home / "runs"), "tracking.uri": new_store(home)}
        config = load(CONF, {**places, **splits, "source.query": query, "train.epochs": 1, "train.workers": 2})
    run(config)
    yield config


@pytest.fixture(scope="module")
def version(config: Config) -> Version:
    return open_version(config.dataset.path, config.data_identity)


def restore_rows(version: Version, split: str) -> np.ndarray:
    """History and future in the query's units, shape (rows, STEPS + HORIZON, series)."""
    pieces = []
    columns = {column.name: column for column in version.columns}
    for column in (columns["history"], columns["future"]):
        tables = [pq.ParquetFile(f"{version.root}/{group.file}").read_row_group(group.index) for group in version.split_row_groups(split)]
        values = np.concatenate([to_numpy(column, table.column(column.name).combine_chunks()) for table in tables])
        pieces.append(restore_encoder(version.manifest.encoders[column.name]).decode(values))
    return np.concatenate(pieces, axis=1)


def sort_by_content(rows: np.ndarray) -> np.ndarray:
    return rows[np.lexsort(rows.reshape(len(rows), -1)[:, ::50].round(2).T)]


@pytest.mark.full
def test_p2_every_window_is_in_the_split_of_all_that_it_predicts(version: Version, hours: np.ndarray) -> None:
    for split, start, stop in (("train", 0, 12), ("validation", 12, 16), ("test", 16, 20)):
        expected = windows(hours, start * MONTH, stop * MONTH)
        rows = restore_rows(version, split)
        assert len(rows) == len(expected) == version.rows(split) == (stop - start) * MONTH - HORIZON + 1 - (0 if start else STEPS)
        np.testing.assert_allclose(sort_by_content(rows), sort_by_content(expected), atol=1e-4)
    assert (version.manifest.rows_parsed, version.manifest.quarantined, version.manifest.warnings) == (len(hours), {}, ())


def test_the_published_months_are_those_of_the_config() -> None:
    config = load(CONF)
    split = config.dataset.split
    assert [month_start(12, 720)[:10], month_start(16, 720)[:10]] == [getattr(split, name) for name in ("validation", "test")]
    assert f"date < '{month_start(20, 720)[:10]}'" in config.source.query


@pytest.mark.full
def test_p3_an_epoch_has_every_window_once_on_any_number_of_workers(version: Version) -> None:
    order, steps = Order(8, 32, seed=1, remainder="keep"), []
    for world_size in (1, 3, 8):
        loaders = [Loader(version, "train", order, shard_range(rank, world_size, 8), row_numbers=True) for rank in range(world_size)]
        steps.append([sorted(int(row) for batch in step for row in batch["row_number"]) for step in zip(*loaders, strict=True)])
    assert steps[0] == steps[1] == steps[2]
    assert sorted(number for step in steps[0] for number in step) == list(range(version.rows("train")))


@pytest.fixture(scope="module")
def result(config: Config, ray_cluster: None) -> Result:
    return train(config)


@pytest.mark.full
def test_p7_served_forecasts_have_the_error_of_the_evaluation(config: Config, result: Result, hours: np.ndarray) -> None:
    mlflow.set_tracking_uri(config.tracking.uri)
    model = mlflow.pyfunc.load_model(result.model)
    rows = windows(hours, 16 * MONTH, 20 * MONTH)
    first_hours = (16 * MONTH + np.arange(len(rows))) % 24
    forecasts = model.predict(pd.DataFrame({"history": [row.tolist() for row in rows[:, :STEPS]], "hour": first_hours.astype(np.int32)}))
    settings = config.dataset.encoders["future"]
    errors = (np.array(forecasts["prediction"].tolist()) - rows[:, STEPS:]) / settings.deviation
    assert result.metrics["test/mse"] == pytest.approx((errors**2).mean(), rel=1e-5)
    last = (rows[:, STEPS - 1 : STEPS] - rows[:, STEPS:]) / settings.deviation
    assert result.metrics["test/repeat_last_mae"] == pytest.approx(abs(last).mean(), rel=1e-5)
    short = model.predict(pd.DataFrame({"history": [rows[0, 1:STEPS].tolist()], "hour": np.int32([0])}))
    assert short["refused"][0].startswith("history: scale cannot encode [[")
