"""Ensembles for tests: members that are finished runs with a model, without Ray; and trainings of an ensemble in this process."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
from torch import Tensor
from trainings import StopsAfter, open_dataset, training

from pipelines.config import Config, parse
from pipelines.launch.initial_weights import fill_in_origins, initial_weights
from pipelines.runtime.weights import from_bytes, model_digest
from pipelines.serving.model import log_model
from pipelines.tasks.bind import build_task
from pipelines.tracking.client import ensure_experiment
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.run_context import Trained
from pipelines.train.strategy import Strategy, create_strategy
from pipelines.train.workers import WorkerContext

MEMBERS: tuple[dict[str, Any], ...] = (
    {"task": {"hidden": [8]}, "epochs": 1, "seed": 1},
    {"task": {"hidden": [64, 32]}, "seed": 3},
    {"task": {"hidden": [32, 32]}, "seed": 4},
)
"""Settings of trainings, as `trainings.training` takes them: the first is much worse than the others."""
TREES: dict[str, Any] = {
    "task": {"kind": "trees", "learning_rate": 0.2, "leaves": 7},
    "epochs": 2,
    "strategy": {"kind": "boosting", "rounds_per_epoch": 10},
}


@dataclass(frozen=True)
class Fitted:
    trained: Trained
    weights: dict[str, Tensor]
    strategy: Strategy


def fit(config: Config, folder: Path, context: WorkerContext | None = None, stop_after: int | None = None) -> Fitted:
    """Train in this process, as a worker would."""
    version, context = open_dataset(config), context or WorkerContext()
    initial = initial_weights(config, version)
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, context, (lambda: from_bytes(initial.content)) if initial else None)
    checkpoints = Checkpoints(RunDirectory(str(folder)), context, 2)
    trained = Loop(config, version, task, strategy, checkpoints, StopsAfter(stop_after)).run()
    return Fitted(trained, strategy.weights(), strategy)


def file_run(config: Config, fitted: Fitted, status: str = "FINISHED", **tags: str) -> str:
    """The ID of a run that has logged the model."""
    version = open_dataset(config)
    client = mlflow.MlflowClient(config.tracking.uri)
    logged = {"dataset.digest": version.digest, "model.digest": model_digest(fitted.weights), **tags}
    run_id = str(client.create_run(ensure_experiment(client, config), tags=logged).info.run_id)
    client.log_text(run_id, config.model_dump_json(by_alias=True), "config.json")
    client.log_text(run_id, version.manifest.to_json().decode(), "manifest.json")
    log_model(config, version.manifest, fitted.weights, run_id, decision=fitted.trained.decision)
    client.set_terminated(run_id, status)
    return run_id


def member_config(home: Path, number: int, **settings: Any) -> Config:
    return training(home, rows=800, **{**MEMBERS[number], **settings})


def file_members(home: Path) -> list[str]:
    """The IDs of the runs of MEMBERS, trained on the dataset in `home`."""
    configs = [member_config(home, number) for number in range(len(MEMBERS))]
    return [file_run(config, fit(config, home / f"member-{number}")) for number, config in enumerate(configs)]


def ensemble_config(home: Path, runs: list[str], task: dict[str, Any] | None = None, **train: Any) -> Config:
    """The config of an ensemble on the dataset in `home`, as somebody writes it."""
    sections = ("name", "source", "dataset", "tracking")
    values = {name: value for name, value in member_config(home, 0).model_dump(mode="json", by_alias=True).items() if name in sections}
    values |= {"task": {"kind": "ensemble", "of": runs, "rounds": 12, **(task or {})}, "train": {"storage": str(home / "runs"), **train}}
    return parse(values, "ensemble")


def fill_in(config: Config) -> Config:
    return fill_in_origins(config, open_dataset(config))
