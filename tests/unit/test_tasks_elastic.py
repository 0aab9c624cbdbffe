"""Tasks that draw something for each row keep the promises: any number of workers, any interruption."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from groups import run_group
from rows import training_on
from trainings import StopsAfter, open_dataset

from pipelines.config import Config
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.run_context import Hooks
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

SEQUENCE = {"encoder": "sequence", "length": 8, "keep": "last", "vocabulary_of": ["history", "next"]}
SPEECH = {"kind": "speech", "filters": [4, 8], "shift_frames": 3, "masked_frames": 4, "masked_mels": 2, "dropout": 0.1}
NEXT_ITEM = {"kind": "next_item", "width": 8, "negatives": 10, "dropout": 0.1}


Weights = dict[str, torch.Tensor]


def sequences(rows: int, seed: int) -> pa.Table:
    """Walks around a circle of 20 items."""
    random = np.random.default_rng(seed)
    walks = [
        (start + np.arange(length)) % 20 for start, length in zip(random.integers(20, size=rows), random.integers(2, 9, rows), strict=True)
    ]
    return pa.table({"history": [walk[:-1].tolist() for walk in walks], "next": [walk[1:].tolist() for walk in walks]})


def sounds(rows: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    label = random.integers(2, size=rows)
    values = random.standard_normal((rows, 8, 20)) + 2 * label[:, None, None] * (np.arange(8) > 3)[:, None]
    return pa.table({"sound": values.tolist(), "label": label})


def write_rows(kind: str, folder: Path, **train: Any) -> Config:
    make, features, target, task = {
        "next_item": (sequences, {"history": SEQUENCE}, {"next": SEQUENCE}, NEXT_ITEM),
        "certain_next_item": (sequences, {"history": SEQUENCE}, {"next": SEQUENCE}, {**NEXT_ITEM, "dropout": 0}),
        "speech": (sounds, {"sound": {"encoder": "identity", "shape": [8, 20]}}, {"label": "label"}, SPEECH),
    }[kind]
    raw = {split: make(rows, seed) for seed, (split, rows) in enumerate({"train": 200, "validation": 40, "test": 40}.items())}
    return training_on(raw, folder, features, target, task, **train)


def train_weights(
    context: WorkerContext, kind: str, home: Path, folder: str, train: dict[str, Any], stop_after: int | None = None
) -> Weights:
    config = write_rows(kind, home, **train)
    version = open_dataset(config)
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, context)
    Loop(config, version, task, strategy, Checkpoints(RunDirectory(folder), context, 2), StopsAfter(stop_after)).run()
    return dict(strategy.model.state_dict())


@pytest.mark.parametrize("kind", ["next_item", "speech"])
def test_p5_exact_is_the_same_bit_for_bit_for_any_workers_and_through_a_stop(kind: str, tmp_path: Path) -> None:
    train = {"strategy": "exact", "shards": 4}
    alone = train_weights(WorkerContext(), kind, tmp_path, str(tmp_path / "alone"), train)
    train_weights(WorkerContext(), kind, tmp_path, str(tmp_path / "stopped"), train, stop_after=8)
    resumed = train_weights(WorkerContext(), kind, tmp_path, str(tmp_path / "stopped"), train)
    together = run_group(3, tmp_path / "group", train_weights, kind, tmp_path, str(tmp_path / "three"), train)
    for actual in (resumed, *together):
        assert actual.keys() == alone.keys()
        for name, values in alone.items():
            assert torch.equal(actual[name], values), name


def test_p3_ddp_draws_the_same_for_two_workers_as_for_one(tmp_path: Path) -> None:
    """Without dropout, what is left to chance are the negatives."""
    train = {"shards": 4, "remainder": "keep", "optimizer": "sgd", "lr": 0.1}  # adam would make much of rounding where a gradient is zero
    alone = train_weights(WorkerContext(), "certain_next_item", tmp_path, str(tmp_path / "alone"), train)
    for actual in run_group(2, tmp_path / "group", train_weights, "certain_next_item", tmp_path, str(tmp_path / "two"), train):
        for name, values in alone.items():
            torch.testing.assert_close(actual[name], values, atol=1e-4, rtol=1e-4)


def test_it_learns_what_comes_next(tmp_path: Path) -> None:
    config = write_rows("next_item", tmp_path, epochs=12, shards=4)
    version = open_dataset(config)
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, WorkerContext())
    fitted = Loop(config, version, task, strategy, Checkpoints(RunDirectory(str(tmp_path / "run")), WorkerContext(), 2), Hooks()).run()
    assert fitted.metrics["test/ndcg_10"] > 0.9
