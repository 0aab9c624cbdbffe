"""A transformer from a folder, from raw texts to a served model that no longer needs the folder."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest
from mlflow.artifacts import download_artifacts
from pyspark.sql import SparkSession
from stores import new_store
from transformer_folders import write_folder

from pipelines.config import Config, parse
from pipelines.etl.run import run as run_etl
from pipelines.launch.training_run import Result, train
from pipelines.serving.export.export_folder import export

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("ray_cluster", "spark")]

GOOD, BAD, THINGS = ("good", "fine", "lovely"), ("bad", "dull", "awful"), ("film", "cat", "dog", "song", "book")


def texts(rows: int) -> pd.DataFrame:
    words = [(GOOD, BAD)[row % 2][row // 2 % 3] for row in range(rows)]
    sentences = [f"a {word} {THINGS[row // 6 % 5]} number {row}" for row, word in enumerate(words)]
    return pd.DataFrame({"text": sentences, "liked": [row % 2 == 0 for row in range(rows)]})


def config(home: Path, **train: Any) -> Config:
    values = {
        "name": "verdicts",
        "source": {"tables": {"verdicts": {"format": "csv", "path": str(home / "raw.csv"), "schema": "text string, liked boolean"}}},
        "dataset": {
            "path": str(home / "data"),
            "features": {"text": {"encoder": "tokenizer", "folder": str(home / "bert"), "length": 10}},
            "target": {"liked": "binary"},
        },
        "task": {"kind": "huggingface", "model": str(home / "bert")},
        "train": {"storage": str(home / "runs"), "strategy": "exact", "epochs": 4, "lr": 3e-3, "global_batch": 16, **train},
        "tracking": {"uri": new_store(home)},
        "export": {"path": str(home / "exports")},
    }
    return parse(values, "verdicts.yaml")


@dataclass(frozen=True)
class Trained:
    config: Config
    result: Result
    on_two_workers: Config


@pytest.fixture(scope="module")
def trained(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    home = tmp_path_factory.mktemp("verdicts")
    frame = texts(240)
    frame.to_csv(home / "raw.csv", index=False, header=False)
    write_folder(home / "bert", frame["text"], head="Model", initializer_range=0.1)
    settings = config(home)
    manifest = run_etl(settings)
    assert not manifest.quarantined and manifest.encoders["text"].state["tokenizer"]
    result, on_two_workers = train(settings), config(home, workers=2)
    (home / "bert").rename(home / "moved")
    return Trained(settings, result, on_two_workers)


def test_it_has_learned(trained: Trained) -> None:
    assert trained.result.metrics["test/auc"] > 0.9, "of words that its tokens tell apart"


def test_the_model_is_the_same_for_two_workers(trained: Trained) -> None:
    folder = Path(trained.config.dataset.path).with_name("bert")
    shutil.copytree(folder.with_name("moved"), folder)
    result = train(trained.on_two_workers)
    shutil.rmtree(folder)
    assert result.model_digest == trained.result.model_digest


def test_fresh_parameters_are_filed_by_name(trained: Trained) -> None:
    uri = trained.config.tracking.uri
    filed = json.loads(Path(download_artifacts(run_id=trained.result.run_id, artifact_path="init_from.json", tracking_uri=uri)).read_text())
    assert filed["initialised"].keys() == {"network.classifier.weight", "network.classifier.bias"}


def test_the_served_model_takes_raw_texts_and_needs_no_folder(trained: Trained) -> None:
    model = mlflow.pyfunc.load_model(trained.result.model)
    served = model.predict(pd.DataFrame({"text": ["a lovely film number 7", "a dull dog number 8", None]}))
    assert served["probability_true"][0] > served["probability_true"][1]
    assert served["refused"].tolist()[2] == "text: tokenizer cannot encode NULL"


def test_its_export_predicts_the_same(trained: Trained) -> None:
    folder = export(trained.config, trained.result.run_id, "onnx")
    rows = {row["model"]: row for row in json.loads((folder / "parity.json").read_text())["rows"]}
    assert rows["onnx"]["max_difference"] < 1e-4 and rows["onnx"]["equal_decisions"] == 1
    assert (folder / "predict.py").exists()
