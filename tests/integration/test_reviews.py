"""Reviews with a price and a category: from a CSV to a perceptron beside the terms of texts, and to trees on them, which every door takes
raw."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession
from reviews import make_reviews
from sklearn.metrics import roc_auc_score
from slices import train_and_log
from stores import new_store
from test_export import predict_alone

from pipelines import api
from pipelines.config import Config, parse
from pipelines.serving.export.export_folder import export
from pipelines.train.passes import one_thread
from pipelines.train.run_context import Hooks

pytestmark = pytest.mark.usefixtures("one_thread")
ROWS = 1_500


TASKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "tabular": ({"hidden": [16], "terms_width": 4, "members": 2}, {"epochs": 15, "global_batch": 32, "lr": 0.01}),
    "trees": ({"terms": 20}, {"epochs": 4}),
}


def make_config(folder: Path, kind: str) -> Config:
    table = {
        "format": "csv",
        "path": str(folder / "raw"),
        "schema": "id int, text string, price double, category string, again boolean",
        "options": {"header": True},
    }
    values = {
        "name": "reviews",
        "source": {"tables": {"reviews": table}},
        "dataset": {
            "path": str(folder / "data"),
            "key": ["id"],
            "features": {"text": {"encoder": "terms", "words": [1], "length": 20}, "price": "log1p", "category": "vocabulary"},
            "target": {"again": "binary"},
        },
        "task": {"kind": kind, **TASKS[kind][0]},
        "train": {"workers": 1, **TASKS[kind][1], "storage": str(folder / "runs")},
        "tracking": {"uri": new_store(folder)},
        "export": {"path": str(folder / "exports")},
    }
    return parse(values, "reviews")


@dataclass(frozen=True)
class LoggedModel:
    """A model that is trained on the reviews."""

    rows: pd.DataFrame
    config: Config
    auc: float
    run_id: str
    uri: str


@pytest.fixture(scope="module", params=["tabular", pytest.param("trees", marks=pytest.mark.full)])
def model(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> LoggedModel:
    folder = tmp_path_factory.mktemp(request.param)
    rows, config = make_reviews(ROWS, seed=0).to_pandas(), make_config(folder, request.param)
    (folder / "raw").mkdir()
    rows.to_csv(folder / "raw" / "rows.csv", index=False)
    with one_thread():
        manifest, result, _, run_id, uri = train_and_log(config, folder, Hooks())
    assert not manifest.quarantined
    return LoggedModel(rows, config, result.metrics["test/auc"], run_id, uri)


def odd_rows(model: LoggedModel) -> pd.DataFrame:
    """The reviews, with a price that none had, a text without known words, and a category that is unknown."""
    raw = model.rows.drop(columns="again")
    raw.loc[0, "price"], raw.loc[1, "text"], raw.loc[2, "category"] = 1e4, "", "boat"
    return raw


@pytest.mark.full
def test_p7_texts_beside_numbers_and_categories_are_predicted_alike_by_mlflow_and_spark(model: LoggedModel, tmp_path: Path) -> None:
    assert model.auc > 0.95, "more than words or price alone tell"
    raw = odd_rows(model)
    by_model = mlflow.pyfunc.load_model(model.uri).predict(raw)
    assert by_model["refused"].isna().all()
    assert roc_auc_score(model.rows["again"], by_model["probability_true"]) > 0.95
    raw.to_csv(tmp_path / "rows.csv", index=False)
    api.predict(model.config, model.uri, str(tmp_path / "out"), [str(tmp_path / "rows.csv")], keep=["id"])
    by_spark = api.open_predictions(str(tmp_path / "out")).to_table().to_pandas().set_index("id").sort_index()
    filled = raw["text"] != ""  # CSV has NULL for it, which is refused
    np.testing.assert_allclose(by_spark["probability_true"][filled], by_model["probability_true"][filled], rtol=1e-6)


@pytest.mark.full
def test_p7_an_exported_graph_predicts_them_alike(model: LoggedModel) -> None:
    raw = odd_rows(model)
    folder = export(model.config, model.run_id, "onnx")
    assert max(row["max_difference"] for row in json.loads((folder / "parity.json").read_text())["rows"]) < 1e-4
    ended = predict_alone(folder, stdin="\n".join(map(json.dumps, raw.head(200).to_dict("records"))))
    assert ended.returncode == 0, ended.stderr
    by_script = [json.loads(line)["probability_true"] for line in ended.stdout.splitlines()]
    by_model = mlflow.pyfunc.load_model(model.uri).predict(raw.head(200))
    np.testing.assert_allclose(by_script, by_model["probability_true"], atol=1e-6)
