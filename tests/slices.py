"""Shipped pipelines over small slices of their real data."""

import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import mlflow
import pytest
import torch
from raw import raw
from stores import new_store

from pipelines.config import Config, load
from pipelines.data.versions.manifest import Manifest
from pipelines.data.versions.versions import open_version
from pipelines.etl.run import run
from pipelines.serving.model import log_model
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.run_context import Hooks, Trained
from pipelines.train.strategy import Strategy, create_strategy
from pipelines.train.workers import WorkerContext

ROOT = Path(__file__).parents[1]
LINES = {
    "trec": {"sentence-classification/TREC.train.all": 400, "sentence-classification/TREC.test.all": 80},
    "movielens": {"ml-100k/ml-100k.inter": 1_500, "ml-100k/ml-100k.user": 944, "ml-100k/ml-100k.item": 1_683},
    "video_games": {"amazon-video-games/Video.txt": 3_000},
    "adult": {"adult/adult-train.csv": 2_000, "adult/adult-test.csv": 500},
}
"""The first so many lines of a pipeline's files."""
RECORDINGS = 150


def load_slice(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, **overrides: Any) -> Config:
    """The pipeline of conf/<name>.yaml over a slice of its data, everything in `folder`: one worker, one epoch of small batches.

    Overrides are those of `train`.
    """
    if name == "spoken_digits":
        _some_recordings(folder / "raw")
    for file, count in LINES.get(name, {}).items():
        (folder / "raw" / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / "raw" / file).write_bytes(b"".join(raw(*file.split("/")).read_bytes().splitlines(keepends=True)[:count]))
    monkeypatch.setenv("LOCKSTEP_RAW", str(folder / "raw"))
    train = {"workers": 1, "epochs": 1, "global_batch": 32, "storage": str(folder / "runs"), **overrides}
    flags = {"dataset.path": str(folder / "data"), "tracking.uri": new_store(folder)}
    return load(ROOT / f"conf/{name}.yaml", {**flags, **{f"train.{key}": value for key, value in train.items()}})


def _some_recordings(folder: Path) -> None:
    """Every 20th of the recordings, and the first of each speaker and digit's, which are the test split's."""
    source = raw("free-spoken-digits", "recordings.tar.gz")
    target = folder / "free-spoken-digits" / source.name
    target.parent.mkdir(parents=True)
    with tarfile.open(source) as recordings, tarfile.open(target, "w:gz") as selection:
        for member in _choose(recordings):
            selection.addfile(member, recordings.extractfile(member))


def _choose(archive: tarfile.TarFile) -> Iterable[tarfile.TarInfo]:
    files = sorted((member for member in archive if member.isfile()), key=lambda member: member.name)
    return [member for number, member in enumerate(files) if number % (len(files) // RECORDINGS) == 0]


def train_and_log(config: Config, folder: Path, hooks: Hooks) -> tuple[Manifest, Trained, Strategy, str, str]:
    """Make the dataset of a pipeline, train its model in this process, and log it: also the ID of its run, and the model's URI."""
    manifest = run(config)
    version = open_version(config.dataset.path, config.data_identity)
    task = build_task(config.task, version.manifest)
    torch.manual_seed(0)
    strategy = create_strategy(config.train, task, WorkerContext())
    checkpoints = Checkpoints(RunDirectory(str(folder / "checkpoints")), WorkerContext(), config.train.checkpoint.keep)
    result = Loop(config, version, task, strategy, checkpoints, hooks).run()
    client = mlflow.MlflowClient(config.tracking.uri)
    run_id = client.create_run(client.create_experiment(f"{config.name} models", artifact_location=f"{folder}/artifacts")).info.run_id
    return manifest, result, strategy, run_id, log_model(config, manifest, strategy.model.state_dict(), run_id)
