"""The models of a trial: each is fitted on rows of the sample, and predicts others. They stand for what the draft may train."""

from typing import Any

import numpy as np

from pipelines.init.tables.trial_inputs import TrialInputs

TREES, LINEAR, NETWORK = "boosted trees", "a linear model", "a small network"
_ROUNDS, _RATE, _PATIENCE = 300, 0.1, 25
_TREES_IN_ALL = 600
"""Of all classes together."""
_PENALTIES = np.logspace(-1, 4, 6)
_STEPS = 3_000
"""Of the network, at most."""


def fit_trees(inputs: TrialInputs, true: np.ndarray, test: np.ndarray, has_classes: bool) -> np.ndarray:
    """LightGBM's trees with the settings of the task `trees`, as many as a part of the rows finds best. Raises ImportError without it."""
    import lightgbm  # noqa: PLC0415, it may lack a library of the system

    values, categories = inputs.tree_inputs()
    classes = len(np.unique(true)) if has_classes else 0
    share = 0.6 if 0.6 * values.shape[1] >= 4 else 1.0
    settings: dict[str, Any] = {
        **({"objective": "regression"} if not classes else {"objective": "binary"} if classes == 2 else {"objective": "multiclass"}),
        **({"num_class": classes} if classes > 2 else {}),
        "learning_rate": _RATE,
        "num_leaves": 31,
        "min_data_in_leaf": 20,
        "feature_fraction": share,
        "verbosity": -1,
        "num_threads": 1,
        "deterministic": True,
        "force_row_wise": True,
        "seed": 0,
    }
    train, is_kept_back = inputs.train, np.arange(len(inputs.train)) % 6 == 5
    parts = [train[~is_kept_back], train[is_kept_back]]
    scale = 1.0 if has_classes else float(true.std()) or 1.0
    fitted, validation = (
        lightgbm.Dataset(values[part], values_of / scale, categorical_feature=categories, params={"verbosity": -1}, free_raw_data=False)
        for part, values_of in zip(parts, (true[~is_kept_back], true[is_kept_back]), strict=True)
    )
    validation.reference = fitted
    stop = lightgbm.early_stopping(_PATIENCE, verbose=False)
    rounds = max(min(_ROUNDS, _TREES_IN_ALL // max(classes, 1)), 30)
    booster = lightgbm.train(settings, fitted, rounds, valid_sets=[validation], callbacks=[stop])
    predicted = np.asarray(booster.predict(values[test]))
    return np.stack([1 - predicted, predicted], 1) if classes == 2 else predicted * scale


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
