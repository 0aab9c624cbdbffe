"""Strategy `sharded` under kill -9: after every kill, the run goes on with other degrees, on another number of workers.

Its losses, as MLflow has them of every step, must be those of one worker with `ddp` that nobody disturbed, and its rows are counted.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, get_args

from mlflow import MlflowClient
from trainings import characters, open_dataset, training

from chaos.life import Life
from chaos.training import Outcome
from pipelines.config import Config
from pipelines.errors import ConfigError
from pipelines.launch.checks import check_training
from pipelines.launch.training_run import Result, train
from pipelines.strategies.sharded.settings import Settings

MOST_WORKERS = 4
KILLS = 5
"""Of one training."""
SCHEDULES = get_args(Settings.model_fields["schedule"].annotation)
Row = dict[str, Any]
Layout = dict[str, Any]
"""`workers` and `strategy` of `train`."""


@dataclass(frozen=True)
class Kind:
    """A model, and how far its losses may be from those of one worker, relatively: rounding grows with steps and layers."""

    config: Callable[..., Config]
    tolerance: float


def perceptron(folder: Path, **train: Any) -> Config:
    """Epochs end with a step of 18 rows."""
    return training(folder, rows=5_010, task={"hidden": [32, 32, 32]}, lr=3e-3, **train)


def gpt(folder: Path, **train: Any) -> Config:
    task = {"layers": 4, "heads": 4, "width": 32, "sample_tokens": 8}
    return characters(folder, rows=2_500, task=task, lr=3e-3, **train)


KINDS = {"perceptron": Kind(perceptron, 1e-5), "GPT": Kind(gpt, 1e-4)}
COMMON: dict[str, Any] = {"shards": 8, "epochs": 3, "remainder": "keep", "clip_norm": 1.0, "timeout_seconds": 60}


def layouts(config: Config) -> list[Layout]:
    """Every layout of up to MOST_WORKERS workers that the model allows."""
    candidates = []
    names = ("replicate", "shard", "tensor", "pipeline", "context")
    for degrees in product(range(1, MOST_WORKERS + 1), repeat=len(names)):
        strategy: Row = {name: degree for name, degree in zip(names, degrees, strict=True) if degree > 1 or name == "shard"}
        schedules = [{"schedule": schedule} for schedule in SCHEDULES] if "pipeline" in strategy else [{}]
        if prod(degrees) <= MOST_WORKERS:
            candidates += [{"workers": prod(degrees), "strategy": {"kind": "sharded", **strategy, **schedule}} for schedule in schedules]
    return [layout for layout in candidates if _is_allowed(config, layout)]


def _is_allowed(config: Config, layout: Layout) -> bool:
    try:
        check_training(_apply_layout(config, layout), open_dataset(config))
    except ConfigError:
        return False
    return True


def _apply_layout(config: Config, layout: Layout) -> Config:
    train_settings = {**config.train.model_dump(), "strategy": "sharded", "max_failures": 0, "checkpoint": {"every_steps": 5}, **layout}
    return config.model_copy(update={"train": type(config.train).model_validate(train_settings)})


def reference_losses(kind: str, folder: Path) -> dict[int, float]:
    """The losses of one worker, by step."""
    folder.mkdir(parents=True, exist_ok=True)
    config = KINDS[kind].config(folder, **COMMON)
    train(config)
    return dict(_curve(config))


def disturb(kind: str, chance: random.Random, folder: Path, losses: dict[int, float], kills: int) -> tuple[list[Outcome], Row]:
    """One training, which goes on in another layout after each kill, except one before its first step: what came of them, and of it."""
    folder.mkdir(parents=True, exist_ok=True)
    config = KINDS[kind].config(folder, **COMMON)
    deck = layouts(config)
    deck = chance.sample(deck, len(deck))
    outcomes: list[Outcome] = []
    lives: list[Life] = []
    fault = ""
    while not fault and (not lives or lives[-1].error):
        life = Life(_apply_layout(config, deck[len(lives)]), chance if len(outcomes) < kills else None)
        life.run()
        fault = life.fault
        if lives and life.first_step:
            outcomes[-1].seconds = life.first_step - lives[-1].kills[-1].moment
        outcomes += [Outcome(f"{kind}: {kill.victims} of the workers killed", False) for kill in life.kills]
        print(f"{kind}: {deck[len(lives)]}: {life}", flush=True)
        lives.append(life)
    row = {
        "case": "layouts",
        "training": kind,
        "kills": len(outcomes),
        "layouts": len(lives),
        **_compare(config, lives[-1].result, losses),
    }
    fault = fault or _faults(row, KINDS[kind].tolerance)
    for outcome in outcomes:
        outcome.recovered, outcome.note = not fault, fault
    return outcomes, row


def _curve(config: Config) -> list[tuple[int, float]]:
    """The points of the loss of the only run."""
    client = MlflowClient(config.tracking.uri)
    experiment = client.get_experiment_by_name(config.experiment)
    (run,) = client.search_runs([experiment.experiment_id])
    return [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, "train/loss")]


def _compare(config: Config, result: Result | None, expected: dict[int, float]) -> Row:
    points = _curve(config)
    losses = dict(points)
    rows = config.train.epochs * open_dataset(config).rows("train")
    differences = [abs(losses[step] / expected[step] - 1) for step in losses.keys() & expected.keys()]
    return {
        "steps": len(losses),
        "steps expected": len(expected),
        "points twice": len(points) - len(losses),
        "rows missing": rows - (result.rows if result else 0),
        "largest difference of a loss": max(differences, default=0.0),
    }


def _faults(row: Row, tolerance: float) -> str:
    is_complete = row["steps"] == row["steps expected"] and not row["points twice"] and not row["rows missing"]
    is_near = row["largest difference of a loss"] <= tolerance
    if is_complete and is_near:
        return ""
    return ", ".join(f"{name}: {value}" for name, value in row.items() if name not in ("case", "training"))
