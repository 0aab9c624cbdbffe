"""Boosted trees in the trial of models for a table."""

from typing import Any

import numpy as np

from pipelines.init.tables.target import TargetChoice
from pipelines.init.tables.trial import Trial, TrialModel
from pipelines.init.tables.trial_inputs import TrialInputs

_ROUNDS, _RATE, _PATIENCE = 300, 0.1, 25
_TREES_IN_ALL = 600
"""Of all classes together."""


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


def _sections(target: TargetChoice, rows: int, trial: Trial | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sections `task` and `train`: epochs of 25 rounds, and how many without gain end the training. A forest of many outputs has fewer
    rounds, as memory has it."""
    outputs = target.column.distinct if target.kind == "classes" else 1
    return {"kind": "trees"}, {"epochs": max(min(40, 400 // outputs), 8), "early_stopping": 5}


MODELS = (
    TrialModel(
        "boosted trees",
        fit_trees,
        _sections,
        is_preferred=True,
        one_number_only="trees predict one number",
        without_library=("trees are not tried: they need lightgbm, as by pip install lightgbm, and the system's library libgomp"),
    ),
)
