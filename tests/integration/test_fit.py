"""From a frame to predictions in one call, as in a notebook, in which Spark and Ray run already."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import ray
from pyspark.sql import SparkSession
from tables import read_tables
from torch import nn

from pipelines import api
from pipelines.errors import ConfigError
from pipelines.launch import ray_trainer

ROWS = 600


def linear() -> Callable[[Any], nn.Module]:
    """A network of one layer, as a closure, whose module workers do not need."""
    return lambda columns: nn.Sequential(columns.inputs(), nn.Linear(columns.width, columns.outputs))


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Customers, who have left by their age and plan. The model takes the month and the hour of two moments, which a query makes."""
    draw = np.random.default_rng(0)
    age, plan = draw.integers(18, 80, ROWS), draw.choice(["basic", "plus", "pro"], ROWS)
    has_left = (age > 50) ^ (plan == "basic")
    moments = pd.Timestamp("2024-01-01") + pd.to_timedelta(draw.integers(0, 900 * 86_400, ROWS), "s")
    columns = {
        "age": age,
        "plan": pd.Categorical(plan),
        "spent": draw.lognormal(3, 1, ROWS).round(2),
        "came in": moments.to_series().to_numpy(),
    }
    return pd.DataFrame({**columns, "paid": moments.tz_localize("Asia/Tokyo"), "day": moments.date, "left": has_left})


@pytest.mark.usefixtures("ray_cluster")
def test_p1_a_frame_becomes_a_model_that_answers_with_frames(
    frame: pd.DataFrame, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    monkeypatch.setattr(ray_trainer, "is_own", lambda: False)  # the controller runs in an actor, as on a notebook's Ray
    settings = {"train.workers": 1, "train.epochs": 30}
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    run = api.fit(frame, target="left", overrides=settings, name="churn")
    assert run.metrics["test/accuracy"] > 0.9 and run.config.name == "churn"
    assert Path(run.page).read_text().startswith("<!")
    assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo", "the session's own settings are back"
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    new_rows = frame.drop(columns="left").iloc[::-1]
    predicted = run.predict(new_rows).iloc[::-1].reset_index(drop=True)
    assert run.dataset.served_query is None and "hour(" in run.config.source.query, "Spark computes what the model takes"
    query, tables = run.config.source, read_tables(spark, run.config.source)
    raw = spark.sql(query.sql).toPandas()
    expected = run.model.predict(raw[run.model.metadata.get_input_schema().input_names()])
    assert tables.parsed == {"churn": ROWS} and predicted["prediction"].tolist() == expected["prediction"].tolist()
    assert predicted["probability_true"].to_numpy() == pytest.approx(expected["probability_true"].to_numpy(), abs=1e-6)
    assert len(predicted) == ROWS and predicted["refused"].isna().all()
    assert ((predicted["prediction"] == "true") == frame["left"]).mean() > 0.9
    assert api.fit(frame.set_axis(range(7, 7 + ROWS)), target="left", overrides=settings, name="churn").run_id == run.run_id, "it is found"
    html = run._repr_html_()
    assert "test/accuracy" in html and run.result.model in html
    page = api.report(run.config.tracking.uri, run.run_id)
    assert page.startswith("<!") and page._repr_html_().startswith("<iframe") and run.dataset.digest[:12] in run.dataset._repr_html_()
    assert spark.range(3).count() == 3 and ray.is_initialized(), "Spark and Ray are the notebook's own"


@pytest.mark.full
@pytest.mark.usefixtures("ray_cluster")
def test_equal_rows_of_another_library_find_the_dataset_again(
    frame: pd.DataFrame, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    spark_frame = spark.createDataFrame(frame.astype({"plan": str}))
    assert dict(spark_frame.dtypes)["came in"] == "timestamp", "Spark takes times without a zone for moments, unless they are cast"
    frames = (frame, spark_frame.withColumn("came in", spark_frame["came in"].cast("timestamp_ntz")))
    runs = [
        api.fit(data, target="left", overrides={"train.workers": 1, "train.max_steps": steps}, name="churn")
        for steps, data in enumerate(frames, 1)
    ]
    assert runs[0].dataset == runs[1].dataset and runs[0].run_id != runs[1].run_id
    page = api.report(runs[0].config.tracking.uri, *(run.run_id for run in runs))
    assert page.startswith("<!")


@pytest.mark.full
@pytest.mark.usefixtures("ray_cluster")
def test_plain_parquet_becomes_a_model_without_etl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    draw = np.random.default_rng(0)
    for split, count in {"train": 2000, "validation": 200, "test": 200}.items():
        x, z = draw.normal(size=(2, count))
        (tmp_path / "plain" / split).mkdir(parents=True)
        rows = pd.DataFrame({"x": x, "z": z.astype("float32"), "y": (x > z).astype("int64")})
        rows.to_parquet(tmp_path / "plain" / split / "0.parquet")
    version = api.from_parquet("plain", target="y", classes=2)
    train = {"workers": 1, "epochs": 20, "global_batch": 64, "lr": 0.01}
    config = api.config_for_version(version, "plain", task=linear(), train=train)
    result = api.train(config, version)
    assert result.metrics["test/accuracy"] > 0.95 and "test/accuracy" in result._repr_html_()
    predicted = api.load_model(config, result.model).predict(pd.DataFrame({"x": [2.0, -2.0], "z": np.array([0, 0], "float32")}))
    assert predicted["prediction"].tolist() == ["1", "0"]


def test_a_target_that_is_no_column_is_one_line_and_nothing_is_made(
    frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="left") as error:
        api.fit(frame, target="lefft")
    assert "\n" not in str(error.value)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["frames"]
