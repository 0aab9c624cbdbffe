"""The models that a trial compares, and the sections `task` and `train` of each, by the number of rows and the kind of target. The figures
were tried on public tables."""

from math import log2
from typing import Any

from pipelines.config.slices import slice_modules
from pipelines.init.tables.target import TargetChoice
from pipelines.init.tables.trial import LINEAR, NETWORK, Trial, TrialModel, fit_linear, fit_network

LEAST_STEPS = 4_000
"""Of an optimizer. A network of five numbers whose product counts had an AUC of 0.930 after 160 steps, and of 0.972 after 5,400."""
LINEAR_LR, LINEAR_FACTOR = 0.05, 4
"""Of Adam, for a linear model of numbers. Where two columns nearly give each other, as the fare and the total of a ride, 4,000 steps of
0.01 end at twice the error that the equations have; batches and epochs four times as large end at 1.05 of it. Of classes, they end a
little lower."""
_HEAVY_PENALTY = 0.02
"""Of squared weights, per row, from which the weights of a linear model are held small: its columns are many for its rows."""
LEAST_EPOCHS, MOST_EPOCHS = 3, 120


def linear_sections(target: TargetChoice, rows: int, trial: Trial | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sections `task` and `train` of a linear model."""
    decay = {"weight_decay": 1.0} if trial and trial.penalty >= _HEAVY_PENALTY else {}
    length = {**_length(rows), "lr": 0.01} if target.has_classes else {**_length(rows, LINEAR_FACTOR), "lr": LINEAR_LR}
    return {"kind": "tabular", "hidden": []}, {**length, **decay, "schedule": "one_cycle"}


def network_sections(target: TargetChoice, rows: int, trial: Trial | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sections `task` and `train` of a perceptron, the wider and freer the more rows there are."""
    if rows < 5_000:
        hidden, dropout = [128, 128], 0.1
    elif rows < 100_000 and target.has_classes:
        hidden, dropout = [256, 256], 0.3
    else:
        hidden, dropout = [256, 256], 0.1 if rows < 30_000 or 100_000 <= rows < 1_000_000 else 0.0
    return {"kind": "tabular", "hidden": hidden, "dropout": dropout}, {**_length(rows), "lr": 0.002, "schedule": "one_cycle"}


def trial_models() -> list[TrialModel]:
    """The models that a trial compares: those in `MODELS` of slices' modules `trial`, and the core's."""
    of_slices = [model for module in slice_modules("trial").values() for model in module.MODELS]
    return [*of_slices, TrialModel(LINEAR, fit_linear, linear_sections), TrialModel(NETWORK, fit_network, network_sections)]


def _length(rows: int, factor: int = 1) -> dict[str, Any]:
    """The batch, a power of two that grows with the root of the number of rows and leaves at least ten steps of an epoch; and as many
    epochs as LEAST_STEPS need, within bounds. Both are larger by the `factor`."""
    batch = min(max(2 ** round(log2(max(rows, 1) ** 0.5 / 1.5)), 32), 4_096) * factor
    while batch > max(rows // 10, 8):
        batch //= 2
    epochs = min(max(-(-LEAST_STEPS * batch // max(rows * 8 // 10, 1)), LEAST_EPOCHS), MOST_EPOCHS * factor)
    return {"epochs": epochs, "global_batch": batch}
