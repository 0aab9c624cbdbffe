"""The models that a trial compares: how each is fitted on the sample, and the sections `task` and `train` of a draft that trains it, by the
number of rows and the kind of target. The figures were tried on public tables."""

from math import log2
from typing import Any

import numpy as np

from pipelines.config.messages.words import show_count
from pipelines.config.slices import slice_modules
from pipelines.init.tables.target import TargetChoice
from pipelines.init.tables.trial import Trial, TrialModel
from pipelines.init.tables.trial_inputs import TrialInputs

LINEAR, NETWORK = "a linear model", "a small network"
_PENALTIES = np.logspace(-1, 4, 6)
_NETWORK_STEPS = 3_000
"""Of the network of a trial, at most."""
LEAST_STEPS = 4_000
"""Of an optimizer. A network of five numbers whose product counts had an AUC of 0.930 after 160 steps, and of 0.972 after 5,400."""
LINEAR_LR, LINEAR_FACTOR = 0.05, 4
"""Of Adam, for a linear model of numbers. Where two columns nearly give each other, as the fare and the total of a ride, 4,000 steps of
0.01 end at twice the error that the equations have; batches and epochs four times as large end at 1.05 of it. Of classes, they end a
little lower."""
_HEAVY_PENALTY = 0.02
"""Of squared weights, per row, from which the weights of a linear model are held small: its columns are many for its rows."""
LEAST_EPOCHS, MOST_EPOCHS = 3, 120


def fit_linear(inputs: TrialInputs, true: np.ndarray, test: np.ndarray, has_classes: bool) -> np.ndarray:
    from sklearn import linear_model  # noqa: PLC0415

    values = inputs.linear_inputs()
    if has_classes:
        classifier = linear_model.LogisticRegression(max_iter=100).fit(values[inputs.train], true)
        return np.asarray(classifier.predict_proba(values[test]))
    return np.asarray(linear_model.RidgeCV(_PENALTIES).fit(values[inputs.train], true).predict(values[test]))


def ridge_penalty(inputs: TrialInputs, true: np.ndarray) -> float:
    """The penalty of squared weights, per row, with which a linear model of a number predicts rows left out best."""
    from sklearn import linear_model  # noqa: PLC0415

    return float(linear_model.RidgeCV(_PENALTIES).fit(inputs.linear_inputs()[inputs.train], true).alpha_) / len(inputs.train)


def fit_network(inputs: TrialInputs, true: np.ndarray, test: np.ndarray, has_classes: bool) -> np.ndarray:
    """A perceptron, of the epoch that a part of the rows finds best."""
    from sklearn import neural_network  # noqa: PLC0415

    values = inputs.network_inputs()
    batch = 32 if len(inputs.train) < 2_000 else 64 if len(inputs.train) < 5_000 else 128
    steps_per_epoch = max(len(inputs.train) * 9 // 10 // batch, 1)
    settings: dict[str, Any] = {
        "hidden_layer_sizes": (128,),
        "early_stopping": True,
        "random_state": 0,
        "learning_rate_init": 0.002,
        "batch_size": batch,
        "max_iter": max(_NETWORK_STEPS // steps_per_epoch, 5),
        "n_iter_no_change": 8,
    }
    if has_classes:
        network = neural_network.MLPClassifier(**settings).fit(values[inputs.train], true)
        return np.asarray(network.predict_proba(values[test]))
    mean, deviation = true.mean(0), np.where(true.std(0) > 0, true.std(0), 1.0)
    regressor = neural_network.MLPRegressor(**settings).fit(values[inputs.train], (true - mean) / deviation)
    return np.asarray(regressor.predict(values[test])) * deviation + mean


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
    return [
        *of_slices,
        TrialModel(LINEAR, fit_linear, linear_sections, fit_penalty=ridge_penalty),
        TrialModel(NETWORK, fit_network, network_sections),
    ]


def choose_model(rows: int, trial: Trial | None) -> tuple[str, str]:
    """The name of the model for a table of so many rows, and the reason. Without a trial, a network."""
    return (trial.choice, "; ".join([trial.text, *trial.untried])) if trial else (NETWORK, f"for about {show_count(rows, 'row')}")


def task_and_training(name: str, target: TargetChoice, rows: int, trial: Trial | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sections `task` and `train` of a model for a table of so many rows."""
    task, train = next(model for model in trial_models() if model.name == name).write(target, rows, trial)
    return task, {"workers": 1 if rows < 20_000 else 2, **train}


def alternative_models(trial: Trial | None) -> list[str]:
    """The models that a trial has tried beside its choice, but for linear ones: a small fit says little of what a long training reaches."""
    return [name for name in trial.scores if name not in (trial.choice, LINEAR)] if trial else []


def _length(rows: int, factor: int = 1) -> dict[str, Any]:
    """The batch, a power of two that grows with the root of the number of rows and leaves at least ten steps of an epoch; and as many
    epochs as LEAST_STEPS need, within bounds. Both are larger by the `factor`."""
    batch = min(max(2 ** round(log2(max(rows, 1) ** 0.5 / 1.5)), 32), 4_096) * factor
    while batch > max(rows // 10, 8):
        batch //= 2
    epochs = min(max(-(-LEAST_STEPS * batch // max(rows * 8 // 10, 1)), LEAST_EPOCHS), MOST_EPOCHS * factor)
    return {"epochs": epochs, "global_batch": batch}
