"""Targets of every kind, and weights of rows, the whole way: from a file to a version, through a training, and from a logged model to
predictions through MLflow and Spark."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mlflow import MlflowClient
from promotions import finished_run, untrained_weights
from pyspark.sql import SparkSession
from stores import new_store

from pipelines import api
from pipelines.config import Config, parse

ROWS, FAULTY = 600, 3
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any], set[str]]] = {
    "negative_binomial": ({"visits": "count"}, {"loss": "negative_binomial"}, {"prediction", "dispersion"}),
    "labels": ({"tags": "labels"}, {}, {"prediction", "probability_a", "probability_b"}),
    "poisson": ({"visits": "count"}, {"loss": "poisson"}, {"prediction"}),
    "quantiles": (
        {"price": "standardize"},
        {"loss": "quantiles", "quantiles": [0.1, 0.9]},
        {"prediction", "quantile_0.1", "quantile_0.9"},
    ),
    "ordinal": (
        {"grade": {"encoder": "label", "order": ["low", "medium", "high"]}},
        {"loss": "ordinal"},
        {"prediction", "probability_low", "probability_medium", "probability_high"},
    ),
    "numbers": (
        {"both": {"encoder": "vector", "columns": ["price", "visits"]}},
        {"target_weights": {"visits": 2.0}},
        {"prediction_price", "prediction_visits"},
    ),
}


def write_rows(folder: Path) -> pd.DataFrame:
    """Rows of which FAULTY have no weight that is one."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=ROWS)
    rows = {
        "id": np.arange(ROWS),
        "x": x,
        "weight": draw.integers(0, 3, ROWS).astype(float),
        "visits": draw.poisson(np.exp(1 + 0.5 * x)),
        "price": 1_000 + 100 * x,
        "grade": np.array(["low", "medium", "high"])[np.clip(x + 1.5, 0, 2).astype(int)],
        "tags": pa.array([[tag for tag, bar in (("a", 0.0), ("b", 0.5)) if value > bar] for value in x]),
    }
    rows["weight"][:FAULTY] = [-1.0, np.nan, np.inf]
    folder.mkdir()
    pq.write_table(pa.table(rows), folder / "rows.parquet")
    return pd.DataFrame({"x": x})


def make_config(folder: Path, kind: str) -> Config:
    target, task, _ = KINDS[kind]
    values = {
        "name": "kinds",
        "source": {"tables": {"rows": {"format": "parquet", "path": str(folder / "raw")}}, "query": "SELECT * FROM rows"},
        "dataset": {
            "path": str(folder / "data"),
            "key": ["id"],
            "features": {"x": "standardize"},
            "passthrough": {"weight": "weight"},
            "target": target,
        },
        "task": {"kind": "tabular", "hidden": [8], "sample_weight": "weight", **task},
        "train": {"workers": 1, "shards": 2, "epochs": 8, "global_batch": 32, "lr": 0.02, "storage": str(folder / "runs")},
        "tracking": {"uri": new_store(folder)},
    }
    return parse(values, "kinds")


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_p7_every_kind_of_target_is_predicted_alike_through_every_door(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    rows, config = write_rows(tmp_path / "raw"), make_config(tmp_path, kind)
    manifest = api.prepare(config)
    assert sum(manifest.quarantined.values()) == FAULTY
    assert all("weight cannot encode" in reason for reason in manifest.quarantined)
    _, uri = finished_run(config, untrained_weights(config, seed=1))
    by_model = api.load_model(config, uri).predict(rows)
    assert set(by_model.columns) == KINDS[kind][2] | {"refused"} and by_model["refused"].isna().all()
    api.predict(config, uri, str(tmp_path / "out"), [str(tmp_path / "raw")], keep=["id"])
    by_spark = api.open_predictions(str(tmp_path / "out")).to_table().to_pandas().set_index("id").sort_index()
    by_model = by_model.drop(columns="refused")
    pd.testing.assert_frame_equal(by_spark[by_model.columns].reset_index(drop=True), by_model, check_dtype=False, rtol=1e-6)


@pytest.mark.full
@pytest.mark.usefixtures("spark", "ray_cluster")
@pytest.mark.parametrize("kind", KINDS)
def test_a_training_of_every_kind_beats_its_trivial_predictor(tmp_path: Path, kind: str) -> None:
    write_rows(tmp_path / "raw")
    config = make_config(tmp_path, kind)
    api.prepare(config)
    result = api.train(config)
    logged = MlflowClient(config.tracking.uri).get_run(result.run_id).data.metrics
    assert all(result.metrics[f"{split}/loss"] < logged[f"baseline/{split}/loss"] for split in ("validation", "test"))
    assert "weight of a row in the loss" in api.report(config.tracking.uri, result.run_id)
