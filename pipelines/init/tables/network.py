"""The model and its training, by the number of rows and the kind of target. The figures were tried on public tables."""

from collections.abc import Sequence
from math import log2
from typing import Any

from pipelines.config.messages.counting import show_count
from pipelines.data.features.auto.encoder_choice import Encoding
from pipelines.init.tables.target import TargetChoice
from pipelines.init.tables.trial import Trial
from pipelines.init.tables.trial_models import LINEAR, NETWORK, TREES

LEAST_ROWS = 50
"""Rows that a split into three and a batch of training need."""
LEAST_STEPS = 4_000
"""Of an optimizer. A network of five numbers whose product counts had an AUC of 0.930 after 160 steps, and of 0.972 after 5,400."""
_HEAVY_PENALTY = 0.02
"""Of squared weights, per row, from which the weights of a linear model are held small: its columns are many for its rows."""
LEAST_EPOCHS, MOST_EPOCHS = 3, 120
NEEDED_FOR_TREES = "they need lightgbm, as by pip install lightgbm, and the system's library libgomp"
MOST_EMBEDDED_COLUMNS = 300
"""Columns beyond which numbers are not embedded: their vectors would outgrow the network."""


def task_and_training(target: TargetChoice, rows: int, trial: Trial | None) -> tuple[dict[str, Any], dict[str, Any], str]:
    """The sections `task` and `train` of a table of so many rows, and the reason. Without a trial, a network."""
    workers = 1 if rows < 20_000 else 2
    choice, reason = (trial.choice, trial.text) if trial else (NETWORK, f"for about {show_count(rows, 'row')}")
    if trial and TREES not in trial.scores:
        reason += "; trees predict one number" if target.further else f"; trees are not tried: {NEEDED_FOR_TREES}"
    if choice == TREES:
        outputs = target.column.distinct if target.kind == "classes" else 1
        return {"kind": "trees"}, {"workers": workers, **_rounds(outputs)}, reason
    batch = _batch_rows(rows)
    train = {"workers": workers, "epochs": _epochs(rows, batch), "global_batch": batch}
    if choice == LINEAR:
        decay = {"weight_decay": 1.0} if trial and trial.penalty >= _HEAVY_PENALTY else {}
        return {"kind": "tabular", "hidden": []}, {**train, "lr": 0.01, **decay, "schedule": "one_cycle"}, reason
    if rows < 5_000:
        hidden, dropout = [128, 128], 0.1
    elif rows < 100_000 and target.has_classes:
        hidden, dropout = [256, 256], 0.3
    else:
        hidden, dropout = [256, 256], 0.1 if rows < 30_000 or 100_000 <= rows < 1_000_000 else 0.0
    task = {"kind": "tabular", "hidden": hidden, "dropout": dropout}
    return task, {**train, "lr": 0.002, "schedule": "one_cycle"}, reason


def _rounds(outputs: int) -> dict[str, Any]:
    """Epochs of 25 rounds, and how many without gain end the training. A forest of many outputs has fewer rounds, as memory has it."""
    return {"epochs": max(min(40, 400 // outputs), 8), "early_stopping": 5}


def _batch_rows(rows: int) -> int:
    """A power of two that grows with the root of the number of rows, and leaves at least ten steps of an epoch."""
    batch = 2 ** round(log2(max(rows, 1) ** 0.5 / 1.5))
    batch = min(max(batch, 32), 4_096)
    while batch > max(rows // 10, 8):
        batch //= 2
    return batch


def _epochs(rows: int, batch: int) -> int:
    """As many as LEAST_STEPS need, within bounds."""
    return min(max(-(-LEAST_STEPS * batch // max(rows * 8 // 10, 1)), LEAST_EPOCHS), MOST_EPOCHS)


def embedding_settings(features: Sequence[Encoding], columns: int) -> dict[str, Any]:
    """The part of the section `task` that embeds numbers; empty if there are none, or too many."""
    has_numbers = not {feature.encoder_name for feature in features}.isdisjoint({"standardize", "normal_quantile", "log1p", "auto"})
    return {"number_embedding": "piecewise"} if has_numbers and columns <= MOST_EMBEDDED_COLUMNS else {}


def recommendation(users: list[str], items: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sections `task` and `train` of ratings."""
    task = {"kind": "recommendation", "network": "factors", "user": users, "item": items, "width": 32, "dropout": 0.3}
    train = {"workers": 2, "epochs": 15, "global_batch": 512, "lr": 0.003, "weight_decay": 0.1, "schedule": "one_cycle"}
    return task, train
