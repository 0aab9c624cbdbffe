"""The models of a trial: each is fitted on rows of the sample, and predicts others. They stand for what the draft may train."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.init.tables.target import TargetChoice
from pipelines.init.tables.trial_inputs import TrialInputs

LINEAR, NETWORK = "a linear model", "a small network"
_PENALTIES = np.logspace(-1, 4, 6)
_STEPS = 3_000
"""Of the network, at most."""


Fit = Callable[[TrialInputs, np.ndarray, np.ndarray, bool], np.ndarray]
"""Fits a model on the rows of the inputs, whose target is given, and predicts other rows: numbers, or probabilities of classes."""


@dataclass(frozen=True)
class TrialModel:
    """A model that a trial compares with others, and a draft may train."""

    name: str
    """As in "ahead of a small network"."""
    fit: Fit
    """Raises ImportError without a library that it needs."""
    write: Callable[[TargetChoice, int, Any], tuple[dict[str, Any], dict[str, Any]]]
    """The sections `task` and `train` for a target, a number of rows and the trial."""
    is_preferred: bool = False
    """Whether it is chosen unless another model is ahead by more than a standard error, as what is trained soonest is."""
    one_number_only: str = ""
    """Why it is not tried for several numbers; empty if it predicts these too."""
    without_library: str = ""
    """What is said where its library is not there."""


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
        "max_iter": max(_STEPS // steps_per_epoch, 5),
        "n_iter_no_change": 8,
    }
    if has_classes:
        network = neural_network.MLPClassifier(**settings).fit(values[inputs.train], true)
        return np.asarray(network.predict_proba(values[test]))
    mean, deviation = true.mean(0), np.where(true.std(0) > 0, true.std(0), 1.0)
    regressor = neural_network.MLPRegressor(**settings).fit(values[inputs.train], (true - mean) / deviation)
    return np.asarray(regressor.predict(values[test])) * deviation + mean
