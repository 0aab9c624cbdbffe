"""The model and its training, by the number of rows and the kind of target. The figures were tried on public tables."""

from collections.abc import Sequence
from typing import Any

from pipelines.data.features.auto.encoder_choice import Encoding
from pipelines.init.media.texts import text_training
from pipelines.init.tables.target import TargetChoice
from pipelines.init.tables.trial import Trial

LEAST_ROWS = 50
"""Rows that a split into three and a batch of training need."""
MANY_COLUMNS = 100
"""Columns beyond which trees may learn more, which a trial on the sample decides."""
NEEDED_FOR_TREES = "trees need pip install 'lockstep-pipelines[trees]'"
MOST_EMBEDDED_COLUMNS = 300
"""Columns beyond which numbers are not embedded: their vectors would outgrow the network."""


def task_and_training(target: TargetChoice, rows: int, trial: Trial | None) -> tuple[dict[str, Any], dict[str, Any], str]:
    """The sections `task` and `train` of a table, and the reason. `trial` is that of a table of many columns, or with texts."""
    workers = 1 if rows < 20_000 else 2
    if trial and trial.prefers_trees:
        return {"kind": "trees"}, {"workers": workers}, f"{trial.text}; {NEEDED_FOR_TREES}"
    hidden = [256, 256]
    if rows < 5_000:
        hidden, dropout, epochs, batch = [128, 128], 0.1, 100, 32
    elif rows < 100_000 and target.has_classes:
        dropout, epochs, batch = 0.3, 20, 512
    elif rows < 100_000:
        dropout, epochs, batch = (0.1 if rows < 30_000 else 0.0), 40, 256
    elif rows < 1_000_000:
        dropout, epochs, batch = 0.1, 10, 1024
    else:
        dropout, epochs, batch = 0.0, 3, 4096
    while batch > max(rows // 10, 8):
        batch //= 2
    task = {"kind": "tabular", "hidden": hidden, "dropout": dropout}
    train = {"workers": workers, "epochs": epochs, "global_batch": batch, "lr": 0.002, "schedule": "one_cycle"}
    return task, train, f"for about {rows:,} rows" + (f"; {trial.text}" if trial else "")


def embedding_settings(features: Sequence[Encoding], columns: int) -> dict[str, Any]:
    """The part of the section `task` that embeds numbers; empty if there are none, or too many."""
    has_numbers = not {feature.encoder_name for feature in features}.isdisjoint({"standardize", "normal_quantile", "log1p", "auto"})
    return {"number_embedding": "piecewise"} if has_numbers and columns <= MOST_EMBEDDED_COLUMNS else {}


def recommendation(users: list[str], items: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sections `task` and `train` of ratings."""
    task = {"kind": "recommendation", "network": "factors", "user": users, "item": items, "width": 32, "dropout": 0.3}
    train = {"workers": 2, "epochs": 15, "global_batch": 512, "lr": 0.003, "weight_decay": 0.1, "schedule": "one_cycle"}
    return task, train


def text_task(target: TargetChoice, rows: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sections `task` and `train` of a table of nothing but texts."""
    return {"kind": "text"}, text_training(rows * 8 // 10)
