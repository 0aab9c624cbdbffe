"""Trainings of the same model in several layouts over workers, to be compared with each other."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from trainings import StopsAfter, open_dataset, training

from pipelines.applications.language.settings import LanguageSettings
from pipelines.applications.language.task import Language
from pipelines.config import Config
from pipelines.config.train.train import Train
from pipelines.data.versions.schema import TensorColumn
from pipelines.tasks.base import Batch, Data
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.checkpoint_record import read_digest_log
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.run_context import Trained
from pipelines.train.step_statistics import Flags
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

# Epochs end with a step of 2 rows, in which most workers and passes have none.
SETTINGS: dict[str, Any] = {
    "strategy": "sharded",
    "shards": 8,
    "global_batch": 64,
    "epochs": 2,
    "remainder": "keep",
    "clip_norm": 0.5,
    "rows": 962,
    "grad_accum_steps": 2,
    "schedule": "cosine",
    "checkpoint": {"every_steps": 10},
}
Fitted = tuple[Trained, dict[str, Tensor], dict[str, Tensor]]
VOCABULARY = 31  # which no number of workers divides
WINDOWS = TensorColumn(name="windows", dtype="uint8", shape=(17,), cardinality=VOCABULARY)
GPT_ROWS, STEPS = 16, 30


def fit_layout(
    context: WorkerContext,
    home: Path,
    folder: Path,
    changes: dict[str, Any],
    stop_after: int | None = None,
    of: Callable[..., Config] = training,
) -> Fitted:
    """The result of a training, and the whole model's weights before and after it."""
    config = of(home, **{**SETTINGS, "workers": context.world_size, **changes})
    version = open_dataset(config)
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, context)
    before = strategy.weights()
    checkpoints = Checkpoints(RunDirectory(str(folder)), context, 2)
    trained = Loop(config, version, task, strategy, checkpoints, StopsAfter(stop_after)).run()
    return trained, before, strategy.weights()


def losses(folder: Path) -> dict[int, float]:
    return read_digest_log(RunDirectory(str(folder))).losses


def gpt(dropout: float = 0.0) -> Language:
    settings = LanguageSettings.model_validate(
        {"kind": "language", "layers": 2, "heads": 2, "width": 32, "dropout": dropout, "sample_tokens": 8}
    )
    return Language(settings, Data((WINDOWS,), tokens=tuple(bytes([65 + number]) for number in range(VOCABULARY))))


def gpt_settings(context: WorkerContext, **changes: Any) -> Train:
    values = {"strategy": "sharded", "global_batch": GPT_ROWS, "shards": 4, "clip_norm": 1.0, "workers": context.world_size}
    return Train.model_validate({**values, **changes})


def windows(part: int = 0, parts: int = 1) -> Batch:
    """The rows of one of several replicas."""
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(VOCABULARY, (GPT_ROWS, 17), generator=generator, dtype=torch.uint8)
    return {"windows": rows.tensor_split(parts)[part]}


def steps(context: WorkerContext, settings: Train, dropout: float = 0.0) -> tuple[list[float], Tensor, str]:
    """Losses of some steps on the same rows, the output for the worker's rows, and a sample."""
    strategy = create_strategy(settings, gpt(dropout), context)
    batch = windows(strategy.mesh.replica, strategy.mesh.replicas)
    text = strategy.sample(1)
    results = [strategy.step(batch, number, 0.003, Flags()) for number in range(STEPS)]
    return [float(result.loss_sum / result.weight) for result in results], strategy.predict(batch), text
