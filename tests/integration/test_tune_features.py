"""A search of features: ETL in a process of its own makes each further dataset version once, and all trials and searches share it."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from mlflow import MlflowClient
from stores import new_store

from pipelines import api
from pipelines.config import load
from pipelines.data.versions.folds import open_fold
from pipelines.data.versions.versions import versions
from pipelines.launch.training_run import find_result
from pipelines.tuning import trial_versions
from pipelines.tuning.driver import run_search

ROWS = 600
SPACE = {
    "dataset.features.income": {"choice": ["standardize", "normal_quantile"]},
    "task.use.noise": {"choice": [True, False]},
}


def write_pipeline(folder: Path) -> Path:
    """A pipeline whose label follows from the rank of a column with a long tail, and its search over a grid of four trials."""
    random = np.random.default_rng(0)
    rank = random.normal(size=ROWS)
    columns = {"income": np.exp(4 * rank), "noise": random.normal(size=ROWS), "rich": rank + random.normal(0, 0.3, ROWS) > 0}
    pq.write_table(pa.table(columns), folder / "people.parquet")
    values: dict[str, Any] = {
        "name": "people",
        "source": {"tables": {"people": {"format": "parquet", "path": str(folder / "people.parquet")}}},
        "dataset": {
            "path": str(folder / "data"),
            "features": {"income": "standardize", "noise": "standardize"},
            "target": {"rich": "binary"},
        },
        "task": {"kind": "tabular", "hidden": []},
        "train": {"storage": str(folder / "runs"), "epochs": 2, "global_batch": 64, "lr": 0.1, "strategy": "exact"},
        "tracking": {"uri": new_store(folder)},
        "tune": {"space": SPACE, "proposer": "grid", "scheduler": "none", "metric": "loss", "final_seeds": 0, "combine": 2, "parallel": 2},
    }
    path = folder / "people.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return path


@pytest.mark.usefixtures("spark", "ray_cluster")
def test_each_other_encoder_has_one_version_that_trials_and_searches_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_pipeline(tmp_path)
    config = load(path)
    own_manifest = api.prepare(config)
    result = run_search(config, str(path))
    assert not any(trial.error for trial in result.trials) and len(result.trials) == 4 and result.begins_with_config
    stored = versions(config.dataset.path)
    assert len(stored) == 2 and stored[0][1].digest == own_manifest.digest == open_fold(config).digest, (
        "others still find the search's own version"
    )
    client = MlflowClient(config.tracking.uri)
    runs = {trial.number: client.get_run(trial.run_id).data for trial in result.trials}
    assert len({runs[number].tags["dataset.digest"] for number in runs}) == 2
    params, best = result.best.params, runs[result.winner]
    assert (
        params["dataset.features.income"] == "normal_quantile" and best.tags["dataset.digest"] == stored[1][1].digest != own_manifest.digest
    )
    winner = load(result.output)
    finished = find_result(winner)
    assert finished is not None and finished.run_id == result.best.run_id, "as `lockstep train --once` finds it"
    served = api.load_model(winner, result.model).metadata.get_input_schema().input_names()
    assert ("noise" in served) == params["task.use.noise"] and "income" in served

    combined = result.combined
    assert combined is not None and len(combined.of) == 2
    assert {client.get_run(run).data.tags["dataset.digest"] for run in combined.of} == {stored[1][1].digest}

    def refuse(*_: Any) -> None:
        raise AssertionError("no ETL runs again")

    monkeypatch.setattr(trial_versions, "EtlProcess", refuse)
    second = run_search(config, str(path))
    assert (second.epochs_trained, second.winner, second.combined) == (0, result.winner, combined)
    assert len(versions(config.dataset.path)) == 2
