"""A small model of many encoders, filed in an MLflow of its own without a training."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pyarrow as pa
import torch
from fitting import gather_statistics
from mlflow.entities import LoggedModelStatus
from stores import new_store

from pipelines.config import Config, parse
from pipelines.config.dataset.dataset import Dataset
from pipelines.data.features import fit_encoders
from pipelines.data.versions.manifest import Manifest
from pipelines.data.versions.schema import schema_to_text
from pipelines.serving.model import log_model
from pipelines.tasks.bind import build_task

ROWS = 500
CONFIG: dict[str, Any] = {
    "name": "served",
    "source": {"tables": {"t": {"format": "parquet", "path": "t"}}},
    "dataset": {
        "path": "data",
        "features": {
            "age": {"encoder": "standardize", "impute": "median"},
            "age bin": {"encoder": "quantile", "column": "age", "bins": 8},
            "children": "minmax",
            "rooms": {"encoder": "log1p", "impute": 0},
            "place": {"encoder": "fourier", "columns": ["x", "y"], "frequencies": 4},
            "word": {"encoder": "vocabulary", "min_count": 2},
            "code": {"encoder": "hash", "buckets": 16},
            "member": {"encoder": "vocabulary"},
            "born": "vocabulary",
            "price": "normal_quantile",
            "pair": {"encoder": "identity", "shape": [2]},
            "pixels": {"encoder": "image", "shape": [1, 2, 2]},
        },
        "target": {"rich": "binary"},
    },
    "task": {"kind": "tabular", "hidden": [16]},
}


@dataclass(frozen=True)
class Served:
    config: Config
    manifest: Manifest
    raw: pa.Table
    weights: dict[str, torch.Tensor]
    uri: str
    run_id: str


def raw_rows() -> pa.Table:
    random = np.random.default_rng(0)
    words = np.array(["ant", "bee", "cat", "dög", "once"])[random.integers(0, 4, ROWS)]
    words[7] = "once"

    def some(values: np.ndarray) -> np.ndarray:
        return random.random(len(values)) < 0.1

    ages, rooms = random.integers(0, 99, ROWS), random.integers(0, 9, ROWS)
    return pa.table(
        {
            "age": pa.array(ages.astype(float), mask=some(ages)),
            "children": pa.array(random.integers(0, 5, ROWS), pa.int32()),
            "rooms": pa.array(rooms, pa.int64(), mask=some(rooms)),
            "x": pa.array(random.normal(size=ROWS), pa.float32()),
            "y": pa.array(random.normal(size=ROWS)),
            "word": pa.array(words, mask=some(words)),
            "code": pa.array(random.integers(0, 2**40, ROWS)),
            "member": pa.array(ages > 50, mask=some(ages)),
            "born": pa.array(20_000 - ages // 10, pa.int32()).cast(pa.date32()),
            "price": pa.array(np.round(random.lognormal(size=ROWS), 2)).cast(pa.decimal128(10, 2)),
            "pair": pa.array(random.normal(size=(ROWS, 2)).tolist()),
            "pixels": pa.array([bytes(row) for row in random.integers(0, 256, (ROWS, 4), np.uint8)]),
            "unused": pa.array(["left out"] * ROWS),
            "rich": pa.array(ages + random.normal(size=ROWS) > 50),
        }
    )


def fit_manifest(dataset: Dataset, raw: pa.Table) -> Manifest:
    """The manifest of a version without parts, fitted to all rows."""
    statistics, profile = gather_statistics(dataset, raw), {}
    for column, summary in statistics.items():
        profile[column] = {} if summary.mean is None else {"mean": summary.mean}
        if summary.counts is not None:
            profile[column] = {"most_frequent": dict(zip(*summary.counts.slice(0, 3).to_pydict().values(), strict=True))}
    return Manifest(
        name="served",
        version="000000000000",
        digest="0" * 64,
        attempt="a",
        raw_schema=schema_to_text(raw.schema),
        encoders=fit_encoders(dataset, statistics, raw.schema),
        splits={},
        rows_parsed=len(raw),
        profile=profile,
    )


def file_model(folder: Path, left_out: Collection[str] = ()) -> Served:
    """Log the model, without the features that are left out, to an MLflow in `folder`."""
    features = {name: settings for name, settings in CONFIG["dataset"]["features"].items() if name not in left_out}
    config = parse({**CONFIG, "dataset": {**CONFIG["dataset"], "features": features}, "tracking": {"uri": new_store(folder)}}, "test")
    raw = raw_rows()
    manifest = fit_manifest(config.dataset, raw)
    torch.manual_seed(0)
    weights = build_task(config.task, manifest).model().state_dict()
    client = mlflow.MlflowClient(config.tracking.uri)
    experiment = client.create_experiment("served", artifact_location=f"{folder}/artifacts")
    run_id = client.create_run(experiment).info.run_id
    client.log_metric(run_id, "test/auc", 0.5, step=3)
    return Served(config, manifest, raw, weights, log_model(config, manifest, weights, run_id, step=3), run_id)


def file_weights(config: Config, content: bytes, digest: str = "") -> str:
    """Id of a run with a model of these weights, as a training files it."""
    client = mlflow.MlflowClient(config.tracking.uri)
    earlier = client.get_experiment_by_name("earlier")
    experiment = earlier.experiment_id if earlier else client.create_experiment("earlier", f"{config.train.storage}/filed")
    run = client.create_run(experiment, tags={"model.digest": digest} if digest else {})
    model = client.create_logged_model(experiment, name="model", source_run_id=run.info.run_id)
    folder = Path(config.train.storage) / run.info.run_id / "artifacts"
    folder.mkdir(parents=True)
    (folder / "weights.safetensors").write_bytes(content)
    client.log_model_artifacts(model.model_id, str(folder.parent))
    client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
    client.create_logged_model(experiment, name="model", source_run_id=run.info.run_id)  # as one that died meanwhile
    client.set_terminated(run.info.run_id)
    return str(run.info.run_id)
