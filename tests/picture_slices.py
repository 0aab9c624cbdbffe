"""Pipelines of pictures over generated files, trained in one process: what the slices of masks and boxes share."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import torch
from stores import new_store

from pipelines.config import Config, load
from pipelines.data.versions.manifest import Manifest
from pipelines.data.versions.versions import open_version
from pipelines.etl.run import run
from pipelines.serving.model import log_model
from pipelines.tasks.bind import build_task
from pipelines.tasks.details import EvaluationData
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.hooks import Hooks
from pipelines.train.loop import Loop
from pipelines.train.reduce.context import WorkerContext
from pipelines.train.state import Trained
from pipelines.train.strategies import create_strategy
from pipelines.train.strategy import Strategy

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Slice:
    config: Config
    manifest: Manifest
    result: Trained
    strategy: Strategy
    evaluation: EvaluationData
    """Of the test split."""
    run_id: str
    model: str


class KeepingHooks(Hooks):
    def __init__(self) -> None:
        self.evaluations: dict[str, EvaluationData] = {}

    def keep_evaluation(self, evaluation: EvaluationData) -> None:
        self.evaluations[evaluation.split] = evaluation


def fit(name: str, folder: Path, tables: Mapping[str, str], flags: Mapping[str, Any]) -> Slice:
    """Make a dataset of conf/<name>.yaml and train its model, with everything in `folder`, where `tables` have their files."""
    places = {"dataset.path": str(folder / "data"), "tracking.uri": new_store(folder), "train.storage": str(folder / "runs")}
    places |= {f"source.tables.{table}.path": str(folder / path) for table, path in tables.items()}
    places |= {"export.path": str(folder / "exports")}
    small = {"train.workers": 1, "train.precision": "fp32"}
    config = load(ROOT / f"conf/{name}.yaml", {**places, **small, "source.max_quarantined": 0.2, **flags})
    manifest = run(config)
    version = open_version(config.dataset.path, config.data_identity)
    task = build_task(config.task, version.manifest)
    torch.manual_seed(0)
    strategy = create_strategy(config.train, task, WorkerContext())
    checkpoints = Checkpoints(RunDirectory(str(folder / "checkpoints")), WorkerContext(), config.train.checkpoint.keep)
    hooks = KeepingHooks()
    result = Loop(config, version, task, strategy, checkpoints, hooks).run()
    client = mlflow.MlflowClient(config.tracking.uri)
    run_id = client.create_run(client.create_experiment(f"{name} models", artifact_location=f"{folder}/artifacts")).info.run_id
    model = log_model(config, manifest, strategy.model.state_dict(), run_id)
    return Slice(config, manifest, result, strategy, hooks.evaluations["test"], run_id, model)
