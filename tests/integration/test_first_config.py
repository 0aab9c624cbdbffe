"""The first hour: a file, `lockstep init`, and the two commands, with no edit."""

import os
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession
from stores import new_store

from pipelines import api

ROWS = 600


def write_table(path: Path) -> None:
    """A table with what real ones have: separators of Europe, missing values, a name of each row, and dates."""
    random = np.random.default_rng(3)
    lines = ["Id;Plan;Age;Since;Spent;left"]
    for number in range(ROWS):
        age = "" if number % 40 == 7 else random.integers(18, 90)
        since = np.datetime64("2024-01-01") + random.integers(0, 600)
        spent = f"{random.lognormal(3, 1):.2f}".replace(".", ",")
        plan = random.choice(["basic", "plus", "pro"])
        has_left = "yes" if random.random() < (0.8 if plan == "basic" else 0.2) else "no"
        lines.append(f"k{number:04};{plan};{age};{since};{spent};{has_left}")
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.usefixtures("spark", "ray_cluster")
def test_a_file_becomes_a_model_without_an_edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCKSTEP_HOME", os.fspath(tmp_path))
    write_table(tmp_path / "churn.csv")
    draft = api.init("churn.csv")
    assert draft.sections["dataset"]["key"] == ["Id"] and draft.sections["dataset"]["target"] == {"left": "binary"}
    config = api.read_config("conf/churn.yaml", {"train.epochs": 3, "tracking.uri": new_store(tmp_path)})
    manifest = api.prepare(config)
    assert sum(summary.rows for summary in manifest.splits.values()) == ROWS and not manifest.quarantined
    result = api.train(config)
    assert 0.5 < result.metrics["test/auc"] <= 1
    served = api.load_model(config, result.model)
    assert len(served.predict(served.input_example)) > 0
