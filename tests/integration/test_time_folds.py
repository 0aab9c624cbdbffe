"""Cross-validation over time: where Spark puts the rows, what each training sees, and windows that end with their fold."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stores import new_store
from trainings import open_dataset

from pipelines import api
from pipelines.config import Config, parse
from pipelines.data.versions.folds import select_fold
from pipelines.data.versions.versions import Version
from pipelines.errors import ConfigError, SourceError

DAYS, SERIES = 40, 6
STARTS = ["2020-01-11", "2020-01-21", "2020-01-31"]
FORECASTS = {
    "source.windows": {"by": "s", "order": "day", "columns": ["x"], "history": 2, "horizon": 3},
    "features": {"history": "scale"},
    "target": {"future": "scale"},
    "task": {"kind": "forecasting"},
}


def write_table(folder: Path) -> None:
    """Six series of 40 days, whose x counts the days; one more row has no day."""
    (folder / "t").mkdir()
    new_store(folder)
    days = np.tile(np.arange(DAYS), SERIES)
    dates = np.append(np.datetime64("2020-01-01") + days, np.datetime64("NaT"))
    columns = {"s": np.append(np.repeat(np.arange(SERIES), DAYS), SERIES), "day": dates, "x": np.append(days, 0).astype(float)}
    pq.write_table(pa.table(columns), folder / "t" / "t.parquet")


def time_config(folder: Path, starts: list[Any], query: str = "SELECT *, x % 3 > 0 AS label FROM t", **sections: Any) -> Config:
    settings = {
        "name": "time_folds",
        "source": {"tables": {"t": {"format": "parquet", "path": str(folder / "t")}}, "query": query, "max_quarantined": 0.1},
        "dataset": {
            "path": str(folder / "data"),
            "split": {"time": "day", "fold_starts": starts},
            "features": sections.get("features", {"x": "identity", "*": "auto"}),
            "target": sections.get("target", {"label": "binary"}),
        },
        "task": sections.get("task", {"kind": "tabular", "hidden": [4]}),
        "train": {"epochs": 1, "global_batch": 8, "shards": 4, "remainder": "keep", "storage": str(folder / "runs")},
        "tracking": {"uri": f"sqlite:///{folder}/mlflow.db"},
    }
    if windows := sections.get("source.windows"):
        settings["source"]["windows"] = windows
    return parse(settings, "time_folds")


def read_values(version: Version, split: str, column: str) -> np.ndarray:
    from pipelines.data.versions.versions import read_column

    return read_column(version, split, version.manifest.encoders[column].column)


@pytest.mark.usefixtures("spark")
def test_p2_p7_each_model_is_trained_on_all_that_is_earlier(tmp_path: Path) -> None:
    write_table(tmp_path)
    config = time_config(tmp_path, STARTS)
    manifest = api.prepare(config)
    assert manifest.folds and manifest.folds.by_time and manifest.folds.rows == {"fold": (60, 60, 60, 60)}
    assert manifest.quarantined == {"split: day is NULL": 1}
    assert "day" not in [column.name for column in manifest.columns], "no pattern takes the column that decides the fold"
    version = open_dataset(config)
    for training in (1, 2):
        selected = select_fold(version, training)
        days = {split: sorted({*read_values(selected, split, "x").ravel().tolist()}) for split in ("train", "validation", "test")}
        end = 10 * training
        assert days == {
            "train": [*range(end)],
            "validation": [*range(end, end + 10)],
            "test": [*range(end + 10, end + 20)],
        }
    as_text = time_config(tmp_path, STARTS, "SELECT s, x, CAST(day AS string) AS day, x % 3 > 0 AS label FROM t")
    rows = api.prepare(as_text).folds
    assert rows == manifest.folds, "text is compared as text"


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_folds_without_rows_and_starts_that_are_no_days_make_no_version(tmp_path: Path) -> None:
    write_table(tmp_path)
    with pytest.raises(SourceError, match=r"no row has day from 2020-03-01, which is fold 4 of 4; leave that start out, or give others"):
        api.prepare(time_config(tmp_path, [*STARTS[:2], "2020-03-01"]))
    for starts in ([STARTS[0], STARTS[0]], ["2020-01-11", "soon"]):
        with pytest.raises(ConfigError, match=r"fold_starts: column day is date; give values of it, each later than the one before \(got "):
            api.prepare(time_config(tmp_path, starts))
    assert not list((tmp_path / "data").rglob("manifest.json"))


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_folds_by_hours_and_what_errors_offer(tmp_path: Path) -> None:
    write_table(tmp_path)
    with pytest.raises(SourceError, match=r"no row has day from 2020-01-11 12:00:00 and before 2020-01-11 18:00:00, which is fold 2 of 3"):
        api.prepare(
            time_config(
                tmp_path,
                ["2020-01-11 12:00:00", "2020-01-11 18:00:00"],
                "SELECT s, x, CAST(day AS timestamp) AS day, x % 3 > 0 AS label FROM t",
            )
        )
    api.prepare(time_config(tmp_path, STARTS[:2]))  # without that start, and with another
    api.prepare(time_config(tmp_path, [STARTS[0], STARTS[2]]))  # values of it, in order


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_a_forecast_s_future_ends_with_its_fold(tmp_path: Path) -> None:
    write_table(tmp_path)
    query = "SELECT * FROM t WHERE day IS NOT NULL"
    config = time_config(tmp_path, STARTS, query, **FORECASTS)
    manifest = api.prepare(config)
    # Of a fold's ten days the last two have no future of three days in it; the first two of all have no history.
    assert manifest.folds and manifest.folds.rows == {"fold": (SERIES * 6, SERIES * 8, SERIES * 8, SERIES * 8)}
    scale = manifest.encoders["future"].state
    selected = select_fold(open_dataset(config), 1)
    future = read_values(selected, "train", "future") * scale["deviation"][0] + scale["mean"][0]
    assert future.max() == pytest.approx(9), "no row of training knows a later fold"
    with pytest.raises(ConfigError, match=r"but source\.windows\.order is x"):
        time_config(tmp_path, STARTS, query, **{**FORECASTS, "source.windows": {**FORECASTS["source.windows"], "order": "x"}})


@pytest.mark.full
@pytest.mark.usefixtures("spark", "ray_cluster")
def test_p5_the_models_over_time_are_runs_in_one_run(tmp_path: Path) -> None:
    write_table(tmp_path)
    config = time_config(tmp_path, STARTS)
    api.prepare(config)
    result = api.cross_validate(config)
    assert [*result.fold_runs] == [1, 2]
    assert "All 2 trainings are finished." in api.report(config.tracking.uri, result.run_id)
    assert {"test/auc_mean", "test/auc_std"} <= result.metrics.keys()
