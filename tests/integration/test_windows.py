"""`source.windows`: columns of the rows before a row, without a look into the future, served as they were made."""

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from promotions import finished_run, untrained_weights
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from stores import new_store
from trainings import open_dataset

from pipelines import api
from pipelines.config import Config, parse
from pipelines.config.dataset.dataset import ByColumn, ByFraction, ByTime
from pipelines.config.dataset.windows import WindowSettings
from pipelines.errors import ConfigError, SourceError
from pipelines.etl.run import run
from pipelines.etl.splits.split_assignment import raw_schema
from pipelines.etl.windows import add_windows, check_columns_read, check_order
from pipelines.serving.model.series_windows import SeriesInputs, add_windows_to_rows

STATISTICS: dict[Any, Any] = {"mean": (4,), "std": (4,), "sum": (2,), "max": (2,)}
LOADS = WindowSettings(order="hour", by=("meter",), lags={"load": (1, 3)}, rolling={"load": STATISTICS})
START = np.datetime64("2017-01-01T00")


def loads(meters: int = 3, hours: int = 60) -> pd.DataFrame:
    """Hourly loads of meters, with decimals that no sum of floats has exactly."""
    random = np.random.default_rng(5)
    frames = [
        pd.DataFrame({"meter": f"m{meter}", "hour": START + np.arange(hours), "load": random.normal(size=hours).round(3) * 10**meter})
        for meter in range(meters)
    ]
    return pd.concat(frames, ignore_index=True)


def spark_rows(spark: SparkSession, frame: pd.DataFrame, seed: int = 0) -> DataFrame:
    """The rows in any order and in as many partitions as the seed says."""
    shuffled = frame.sample(frac=1, random_state=seed)
    return spark.createDataFrame(shuffled.assign(hour=shuffled["hour"].dt.tz_localize("UTC"))).repartition(1 + 3 * seed)


def sequential(values: np.ndarray) -> tuple[float, float]:
    """Mean and deviation, summed from the first value to the last."""
    total = 0.0
    for value in values:
        total += value
    return total / len(values), float(np.std(values, ddof=1))


def test_p6_values_are_of_the_rows_strictly_before_and_of_their_order_alone(spark: SparkSession) -> None:
    frame = loads()
    results = [
        add_windows(spark_rows(spark, frame, seed), LOADS).toPandas().sort_values(["meter", "hour"], ignore_index=True) for seed in (0, 2)
    ]
    pd.testing.assert_frame_equal(results[0], results[1], check_exact=True)
    assert len(results[0]) == 3 * (60 - LOADS.rows_before)
    for meter, rows in results[0].groupby("meter"):
        values = frame.loc[frame["meter"] == meter, "load"].to_numpy()
        for position, row in enumerate(rows.itertuples(), LOADS.rows_before):
            mean, deviation = sequential(values[position - 4 : position])
            assert (row.load, row.load_lag_1, row.load_lag_3) == (values[position], values[position - 1], values[position - 3])
            assert (row.load_mean_4, row.load_max_2) == (mean, values[position - 2 : position].max())
            assert row.load_std_4 == pytest.approx(deviation, rel=1e-12)


def test_null_is_a_value_of_a_lag_and_is_left_out_of_statistics(spark: SparkSession) -> None:
    rows = spark.sql("SELECT * FROM VALUES (1, 1D), (2, NULL), (3, 3D), (5, 7D), (9, NULL), (10, NULL), (11, 0D) AS t(hour, load)")
    windows = WindowSettings(order="hour", lags={"load": (1,)}, rolling={"load": {"mean": (2,), "std": (2,), "min": (2,)}})
    rows_with_windows = [tuple(row)[2:] for row in add_windows(rows, windows).orderBy("hour").collect()]
    deviation = np.sqrt(8)
    expected = [(None, 1.0, None, 1.0), (3.0, 3.0, None, 3.0), (7.0, 5.0, deviation, 3.0), (None, 7.0, None, 7.0), (None,) * 4]
    assert rows_with_windows == expected


def test_p7_a_served_model_makes_the_very_values_of_spark(spark: SparkSession) -> None:
    statistics: dict[Any, Any] = {"mean": (5, 24), "std": (2, 24), "sum": (7,), "min": (3,), "max": (3,)}
    rolling = {"load": statistics, "n": statistics}
    windows = WindowSettings(order="hour", by=("meter",), lags={"load": (1,)}, rolling=rolling, columns=("load", "n"), history=4)
    frame, random = loads(hours=200), np.random.default_rng(1)
    frame["n"] = pd.array(random.integers(-9, 9, len(frame)), "Int32")
    frame.loc[random.random(len(frame)) < 0.3, "n"] = pd.NA
    rows = spark_rows(spark, frame).withColumn("load", F.when(F.col("n") > -8, F.col("load")))
    windowed = add_windows(rows, windows)
    raw, expected = rows.toArrow(), windowed.toArrow()
    columns = pa.schema([field for field in raw_schema(windowed) if field.name in [*windows.generated, "meter", "hour"]])
    served, _ = add_windows_to_rows(raw, SeriesInputs(windows, raw.schema, frozenset(windows.generated), columns))
    place = [("meter", "ascending"), ("hour", "ascending")]
    assert served.sort_by(place).to_pylist() == expected.select(columns.names).sort_by(place).to_pylist()


def future_hours(rows: DataFrame) -> list[float]:
    return sorted(row["future"][0][0] for row in rows.collect())


def test_p7_no_future_lies_in_two_splits(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT CAST(id AS int) AS hour, id, CASE WHEN id < 10 THEN 'train' WHEN id < 14 THEN 'test' END AS part FROM range(20)"
    )
    windows = WindowSettings(order="hour", columns=("id",), history=2, horizon=3)
    by_time = add_windows(rows, windows, ByTime(time="hour", validation="10", test="14"))
    assert future_hours(by_time) == [*range(2, 8), 10, 11, *range(14, 18)]
    assert future_hours(add_windows(rows, windows, ByColumn(by="part"))) == [*range(2, 8), 10, 11, *range(14, 18)]
    assert future_hours(add_windows(rows, windows, ByFraction(group="id"))) == list(range(2, 18))
    first = by_time.orderBy("hour").head()
    assert first and (first["history"], first["future"]) == ([[0.0], [1.0]], [[2.0], [3.0], [4.0]])
    to_predict = add_windows(rows, windows)
    assert "future" not in to_predict.columns and to_predict.count() == 18


@pytest.mark.parametrize(
    ("values", "by", "message"),
    [
        (
            "(1, 'a', 'train'), (1, 'a', 'train'), (2, 'a', 'train')",
            (),
            "hour comes twice within a series, as hour 1 does",
        ),
        ("(1, 'a', 'train'), (1, 'b', 'train')", (), "make one row of them by GROUP BY in source.query, or name in source.windows.by"),
        ("(1, NULL, 'train'), (1, NULL, 'train')", ("meter",), "as meter NULL, hour 1 does (1 times"),
        ("(NULL, 'a', 'train'), (1, 'a', 'train')", (), "1 of 2 rows have no hour, and so no place in their series; add WHERE hour IS NOT"),
        (
            "(1, 'a', 'test'), (2, 'a', NULL), (3, 'a', 'train')",
            (),
            "part goes back to an earlier split 1 times, as at hour 3; in",
        ),
    ],
)
def test_rows_without_a_place_in_their_series_are_one_line(spark: SparkSession, values: str, by: tuple[str, ...], message: str) -> None:
    rows = spark.sql(f"SELECT * FROM VALUES {values} AS t(hour, meter, part)")
    with pytest.raises(SourceError) as caught:
        check_order(rows, WindowSettings(order="hour", by=by, lags={"hour": (1,)}), ByColumn(by="part"))
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_remedies_of_order_and_of_splits_work(spark: SparkSession) -> None:
    values = "(1, 'a', 'train'), (1, 'b', 'train'), (NULL, 'a', 'train'), (2, 'a', 'test'), (3, 'b', 'train')"
    sql = f"SELECT * FROM VALUES {values} AS t(hour, m, p)"
    windows = WindowSettings(order="hour", by=("m",), lags={"hour": (1,)})
    assert check_order(spark.sql(f"{sql} WHERE hour IS NOT NULL"), windows, ByColumn(by="p")) == 4
    grouped = spark.sql(f"SELECT hour, min(m) AS m FROM ({sql}) WHERE hour IS NOT NULL GROUP BY hour")
    assert check_order(grouped, WindowSettings(order="hour", lags={"hour": (1,)})) == 3


def test_p7_nan_is_left_out_of_statistics_like_null_and_is_no_place(spark: SparkSession) -> None:
    sql = "SELECT * FROM VALUES (1, 2D), (2, CAST('NaN' AS double)), (3, 4D), (4, 8D) AS t(hour, load)"
    windows = WindowSettings(order="hour", rolling={"load": {"mean": (3,), "max": (3,), "sum": (3,)}})
    (row,) = add_windows(spark.sql(sql), windows).collect()
    assert (row["load_mean_3"], row["load_max_3"], row["load_sum_3"]) == (3.0, 4.0, 6.0)
    with pytest.raises(SourceError, match="1 of 4 rows have no load, and so no place in their series"):
        check_order(spark.sql(sql), WindowSettings(order="load", lags={"hour": (1,)}))


@pytest.mark.parametrize(
    ("windows", "message"),
    [
        ({"lags": {"laod": [1]}}, "source.windows.lags.laod: the query gives no column laod; did you mean load?"),
        ({"order": "text"}, "source.windows.order: column text is string, which has no order of time; CAST it to timestamp, date or a"),
        ({"rolling": {"text": {"mean": 2}}}, "source.windows.rolling.text: column text is string, and not a number; CAST it"),
        (
            {"by": ["tags"]},
            "source.windows.by: column tags is array<int>, which names no series; take a column of single values, or CAST it",
        ),
        ({"columns": ["text"], "history": 2}, "source.windows.columns: column text is string, and not a number; CAST it"),
        ({"lags": {"load": [7]}}, "source.windows makes load_lag_7, and so does source.query; rename it there with AS"),
    ],
)
def test_columns_that_no_window_can_read_are_one_line(spark: SparkSession, windows: dict[str, Any], message: str) -> None:
    rows = spark.sql("SELECT 1 AS hour, 'x' AS text, array(1) AS tags, 2D AS load, 3D AS LOAD_LAG_7")
    with pytest.raises(ConfigError) as caught:
        check_columns_read(rows, WindowSettings.model_validate({"order": "hour", "lags": {"load": [1]}, **windows}))
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_remedies_of_columns_work(spark: SparkSession) -> None:
    rows = spark.sql("SELECT CAST(text AS int) AS text, 3D AS other, CAST(array(1) AS string) AS tags FROM VALUES ('1'), ('2') AS t(text)")
    windows = WindowSettings(order="text", by=("tags",), rolling={"text": {"mean": (1,)}}, lags={"other": (7,)})
    check_columns_read(rows, windows)


def pipeline(folder: Path, frames: list[pd.DataFrame], **dataset: Any) -> Config:
    (folder / "in").mkdir(parents=True, exist_ok=True)
    for number, frame in enumerate(frames):
        frame.to_csv(folder / f"in/{number}.csv", index=False)
    table = {
        "format": "csv",
        "path": str(folder / "in"),
        "schema": "meter string, hour timestamp, load double",
        "options": {"header": True},
    }
    windows = {"order": "hour", "by": "meter", "lags": {"load": [1, 2]}, "rolling": {"load": {"mean": 3, "std": 3}}}
    values: dict[str, Any] = {
        "name": "loads",
        "source": {"tables": {"loads": table}, "query": "SELECT * FROM loads", "windows": windows, "expect": {"load": "load < 1e9"}},
        "dataset": {
            "path": str(folder / "data"),
            "split": {"time": "hour", "validation": "2017-01-02", "test": "2017-01-02 12:00:00"},
            "features": dict.fromkeys(("load_lag_1", "load_lag_2", "load_mean_3", "load_std_3"), "standardize"),
            "target": {"load": "standardize"},
            **dataset,
        },
        "task": {"kind": "tabular", "hidden": [4]},
        "tracking": {"uri": new_store(folder)},
    }
    return parse(values, "loads.yaml")


@pytest.fixture(scope="module")
def config(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Config:
    config = pipeline(tmp_path_factory.mktemp("loads"), [loads()])
    run(config)
    return config


@pytest.mark.full
def test_p6_the_digest_is_of_the_rows_and_not_of_files(config: Config, tmp_path: Path) -> None:
    frame = loads().sample(frac=1, random_state=3)
    halves = [frame.iloc[:50], frame.iloc[50:]]
    manifest = run(pipeline(tmp_path, halves))
    assert manifest.digest == open_dataset(config).digest
    assert manifest.notes == (
        "source.windows: 9 of the query's 180 rows are left out, since they do not have 3 rows of their series before them",
    )
    assert [split.rows for split in manifest.splits.values()] == [63, 36, 72]


@pytest.mark.full
def test_p7_a_batch_predicts_from_the_last_rows(config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, uri = finished_run(config, untrained_weights(config, seed=1))
    frame = loads()
    last = pd.concat([rows.tail(4) for _, rows in frame.groupby("meter")])
    last.loc[last["hour"] == last["hour"].max(), "load"] = np.nan  # not known yet
    last.to_csv(tmp_path / "last.csv", index=False)
    with caplog.at_level(logging.INFO):
        result = api.predict(config, uri, str(tmp_path / "out"), [str(tmp_path / "last.csv")])
    assert (result.rows_out, result.refused) == (3, {})
    assert "9 of 12 rows are not predicted, since they have fewer than 3 rows of their series before them" in caplog.text
    predicted = api.open_predictions(str(tmp_path / "out")).to_table().to_pandas().sort_values("meter", ignore_index=True)
    assert "load_lag_1" not in predicted and "hour" in predicted
    values = [rows["load"].to_numpy() for _, rows in frame.groupby("meter")]
    statistics = [sequential(value[-4:-1]) for value in values]
    features = {
        "load_lag_1": [value[-2] for value in values],
        "load_lag_2": [value[-3] for value in values],
        "load_mean_3": [mean for mean, _ in statistics],
        "load_std_3": [deviation for _, deviation in statistics],
    }
    expected = api.load_model(config, uri).predict(pd.DataFrame(features))
    np.testing.assert_allclose(predicted["prediction"], expected["prediction"], rtol=1e-6)
    of_series = api.load_model(config, uri).predict(last.sample(frac=1, random_state=1)).sort_index()
    np.testing.assert_allclose(of_series["prediction"].dropna(), expected["prediction"], rtol=1e-6)
    assert of_series["refused"].isna().sum() == 3
    last.groupby("meter").tail(2).to_csv(tmp_path / "short.csv", index=False)
    with pytest.raises(SourceError, match="none of the 6 rows has 3 rows of its series before it; give the last 3 rows of each series"):
        api.predict(config, uri, str(tmp_path / "short"), [str(tmp_path / "short.csv")])


def forecasts(folder: Path) -> Config:
    """Quantiles of loads, from their history, the meter and the hour of the day."""
    config = pipeline(folder, [loads()])
    task = {"kind": "forecasting", "kernel": 3, "loss": "quantiles", "quantiles": [0.2, 0.8]}
    values = config.model_dump(mode="json", by_alias=True) | {"task": task, "export": {"path": str(folder / "exports")}}
    values["source"] |= {
        "query": "SELECT *, EXTRACT(HOUR FROM hour) AS time FROM loads",
        "windows": {"order": "hour", "by": ["meter"], "columns": ["load"], "history": 5, "horizon": 4},
    }
    features = {"meter": "vocabulary", "time": {"encoder": "fourier", "frequencies": 2}, "history": "scale"}
    values["dataset"] |= {"features": features, "target": {"future": "scale"}}
    return parse(values, "loads.yaml")


def random_weights(config: Config) -> dict[str, torch.Tensor]:
    """With which every feature matters."""
    return {name: torch.randn(value.shape) for name, value in untrained_weights(config, seed=1).items()}


HISTORIES = pd.DataFrame({
    "meter": ["m0", "m1", "m2"],
    "time": 11,
    "history": [rows["load"].to_numpy()[-6:-1, None].tolist() for _, rows in loads().groupby("meter")],
})  # fmt: skip
ANSWERS = ("prediction", "quantile_0.2", "quantile_0.8")


def test_a_forecast_needs_no_scale_by_hand_and_is_served_with_features_of_its_series(spark: SparkSession, tmp_path: Path) -> None:
    config = forecasts(tmp_path)
    manifest = run(config)
    assert [split.rows for split in manifest.splits.values()] == [3 * (24 - 5 - 3), 3 * (12 - 3), 3 * (24 - 3)]
    trained = np.concatenate([rows["load"].to_numpy()[5:21] for _, rows in loads().groupby("meter")])
    state = manifest.encoders["future"].state
    assert state == manifest.encoders["history"].state
    np.testing.assert_allclose([state["mean"][0], state["deviation"][0]], [trained.mean(), trained.std()], rtol=1e-12)
    assert manifest.encoders["future"].column.shape == (4, 1)

    _, uri = finished_run(config, random_weights(config))
    last = pd.concat([rows.tail(6) for _, rows in loads().groupby("meter")])
    last["time"] = last["hour"].dt.hour  # as the query makes it
    last.loc[last["hour"] == last["hour"].max(), "load"] = np.nan  # not known yet
    served = api.load_model(config, uri)
    of_rows, of_histories = served.predict(last).dropna(subset="prediction"), served.predict(HISTORIES)
    elsewhere = served.predict(HISTORIES.assign(meter="m9"))
    for name in ANSWERS:
        assert np.shape(of_rows[name].tolist()) == (3, 4, 1)
        np.testing.assert_allclose(of_rows[name].tolist(), of_histories[name].tolist(), rtol=1e-6)
        assert not np.allclose(elsewhere[name].tolist(), of_histories[name].tolist())


@pytest.mark.full
def test_p7_its_export_and_script_forecast_alike(spark: SparkSession, tmp_path: Path) -> None:
    config = forecasts(tmp_path)
    run(config)
    run_id, uri = finished_run(config, random_weights(config))
    folder = api.export(config, run_id, "onnx")
    lines = "\n".join(json.dumps(row) for row in HISTORIES.to_dict("records"))
    script = subprocess.run([sys.executable, str(folder / "predict.py")], input=lines, capture_output=True, text=True, check=True)
    expected = api.load_model(config, uri).predict(HISTORIES)
    for row, line in enumerate(map(json.loads, script.stdout.splitlines())):
        for name in ANSWERS:
            np.testing.assert_allclose(line[name], expected[name][row], rtol=1e-4, atol=1e-4)
    assert row == len(HISTORIES) - 1
