"""Reviews with a price and a category: from a CSV to a perceptron beside the terms of texts, and to trees on them, which every door takes
raw."""

import json
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
from pyspark.sql import SparkSession
from reviews import make_reviews
from sklearn.metrics import roc_auc_score
from slices import train_and_log
from stores import new_store
from test_export import predict_alone

from pipelines import api
from pipelines.config import Config, parse
from pipelines.serving.export.run import export
from pipelines.train.hooks import Hooks

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


@pytest.mark.parametrize("kind", ["tabular", pytest.param("trees", marks=pytest.mark.full)])
def test_p7_texts_beside_numbers_and_categories_are_predicted_alike_through_every_door(
    kind: str, spark: SparkSession, tmp_path: Path
) -> None:
    rows = make_reviews(ROWS, seed=0).to_pandas()
    (tmp_path / "raw").mkdir()
    rows.to_csv(tmp_path / "raw" / "rows.csv", index=False)
    config = make_config(tmp_path, kind)
    manifest, result, _, run_id, uri = train_and_log(config, tmp_path, Hooks())
    assert not manifest.quarantined and result.metrics["test/auc"] > 0.95, "more than words or price alone tell"

    # A price that no review has, a text without known words, a category that is unknown.
    raw = rows.drop(columns="again")
    raw.loc[0, "price"], raw.loc[1, "text"], raw.loc[2, "category"] = 1e4, "", "boat"
    by_model = mlflow.pyfunc.load_model(uri).predict(raw)
    assert by_model["refused"].isna().all()
    assert roc_auc_score(rows["again"], by_model["probability_true"]) > 0.95
    raw.to_csv(tmp_path / "raw" / "rows.csv", index=False)
    api.predict(config, uri, str(tmp_path / "out"), [str(tmp_path / "raw")], keep=["id"])
    by_spark = api.open_predictions(str(tmp_path / "out")).to_table().to_pandas().set_index("id").sort_index()
    filled = raw["text"] != ""  # CSV has NULL for it, which is refused
    np.testing.assert_allclose(by_spark["probability_true"][filled], by_model["probability_true"][filled], rtol=1e-6)

    folder = export(config, run_id, "onnx")
    assert max(row["max_difference"] for row in json.loads((folder / "parity.json").read_text())["rows"]) < 1e-4
    ended = predict_alone(folder, stdin="\n".join(map(json.dumps, raw.head(200).to_dict("records"))))
    assert ended.returncode == 0, ended.stderr
    by_script = [json.loads(line)["probability_true"] for line in ended.stdout.splitlines()]
    np.testing.assert_allclose(by_script, by_model["probability_true"].head(200), atol=1e-6)
