"""A small model of many encoders: a dataset version on disk and a run in an MLflow of its own, without Spark and training."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import pyarrow as pa
import torch
from filed import CONFIG, fit_manifest, raw_rows
from stores import new_store
from torch import nn

from pipelines.config import Config, parse
from pipelines.data.features import Encoders
from pipelines.data.versions.plain import commit_arrays
from pipelines.data.versions.schema import schema_to_text, to_numpy
from pipelines.serving.model import log_model
from pipelines.tasks.bind import build_task

ABSENT = """
import sys

class Absent:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("pydantic", "torch", "mlflow", "pyspark", "yaml", "ray", "pandas"):
            raise ModuleNotFoundError(f"{name} is not installed")

sys.meta_path.insert(0, Absent())
"""
"""Code after which a process is as where these packages are not installed."""


@dataclass(frozen=True)
class Exported:
    config: Config
    run_id: str
    uri: str
    raw: pa.Table
    """The rows of both splits, before they were encoded."""


class Eigenvalues(nn.Module):
    """A network with an operator that neither ONNX nor ExecuTorch has. It takes the column of images."""

    def forward(self, rows: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.linalg.eigvalsh(rows["pixels"].float()[:, 0])


def model_of_many_encoders(
    folder: Path,
    hidden: tuple[int, ...] = (16,),
    splits: tuple[str, ...] = ("train", "test"),
    task: dict[str, Any] | None = None,
    features: dict[str, Any] | None = None,
) -> Exported:
    """Its splits are the same rows. `task` is in place of a perceptron with these hidden layers, `features` of the usual ones."""
    folder.mkdir(exist_ok=True)
    config = parse(
        {
            **CONFIG,
            "dataset": {**CONFIG["dataset"], "path": str(folder / "data"), **({"features": features} if features else {})},
            "task": task or {"kind": "tabular", "hidden": list(hidden)},
            "tracking": {"uri": new_store(folder)},
            "export": {"path": str(folder / "exports"), "hls4ml": {"rows": 50}},
        },
        "test",
    )
    raw = raw_rows()
    fitted_to = fit_manifest(config.dataset, raw)
    encoders = fitted_to.encoders
    encoded, _ = Encoders(encoders).encode(raw)
    rows = {name: to_numpy(fitted.column, encoded[name].combine_chunks()) for name, fitted in encoders.items()}
    fields = {"identity": config.data_identity, "raw_schema": schema_to_text(raw.schema), "profile": fitted_to.profile}
    version = commit_arrays(str(folder / "data"), {split: [rows] for split in splits}, encoders, **fields)
    torch.manual_seed(0)
    weights = build_task(config.task, version.manifest).model().state_dict()
    client = mlflow.MlflowClient(config.tracking.uri)
    run_id = client.create_run(client.create_experiment("served", artifact_location=f"{folder}/artifacts")).info.run_id
    return Exported(config, run_id, log_model(config, version.manifest, weights, run_id), raw)
