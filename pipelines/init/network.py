"""The network and its training, by the number of rows and the kind of target. The figures were tried on public tables."""

from typing import Any

from pipelines.init.target import TargetChoice
from pipelines.init.texts import text_training

LEAST_ROWS = 50
"""Rows that a split into three and a batch of training need."""


def task_and_training(target: TargetChoice, rows: int) -> tuple[dict[str, Any], dict[str, Any], str]:
    """The sections `task` and `train` of a table, and the reason."""
    if rows < 5_000:
        hidden, dropout, epochs, batch = [128, 128], 0.1, 100, 32
    elif rows < 100_000:
        hidden, dropout, epochs, batch = ([128, 64], 0.3, 10, 512) if target.has_classes else ([256, 256, 256], 0.2, 40, 256)
    elif rows < 1_000_000:
        hidden, dropout, epochs, batch = [256, 256], 0.1, 10, 1024
    else:
        hidden, dropout, epochs, batch = [256, 256], 0.0, 3, 4096
    while batch > max(rows // 10, 8):
        batch //= 2
    weights = {"class_weights": "balanced"} if target.has_rare_class else {}
    task = {"kind": "tabular", "hidden": hidden, "dropout": dropout, **weights}
    train = {"workers": 1 if rows < 20_000 else 2, "epochs": epochs, "global_batch": batch, "lr": 0.002, "schedule": "one_cycle"}
    return task, train, f"for about {rows:,} rows"


def recommendation(users: list[str], items: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sections `task` and `train` of ratings."""
    task = {"kind": "recommendation", "network": "factors", "user": users, "item": items, "width": 32, "dropout": 0.3}
    train = {"workers": 2, "epochs": 15, "global_batch": 512, "lr": 0.003, "weight_decay": 0.1, "schedule": "one_cycle"}
    return task, train


def text_task(target: TargetChoice, rows: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sections `task` and `train` of classes of texts."""
    weights = {"class_weights": "balanced"} if target.has_rare_class else {}
    return {"kind": "text", **weights}, text_training(rows * 8 // 10)
