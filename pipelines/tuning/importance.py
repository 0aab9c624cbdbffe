"""How much each setting of a search decides, by the permutation importance of a random forest (Breiman 2001).

The forest learns the ranks of trials from their settings. A setting is as important as the forest's R² falls when its values are shuffled
among the trials, while the others stay. Ranks and not scores, so that one loss of 1e9 does not decide all. The scores are those of the
first rung, which every trial has come to: later ones are of trials that were chosen for their settings.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log10
from typing import Any

import numpy as np

from pipelines.config.tuning import Dimension
from pipelines.tuning.search import Params

LEAST_TRIALS = 8
"""Trials below which a forest learns nothing of several settings."""
_TREES, _SHUFFLES = 200, 30


@dataclass(frozen=True)
class SettingImportance:
    """How much each setting of a search decides."""

    settings: dict[str, tuple[float, float]]
    """By how much R² falls when a setting is shuffled, mean and standard deviation of 30 times; the most important one first."""
    explained: float
    """R² of trials that a tree was not fitted on (out of bag): at 0 or below, the importances say nothing."""
    trials: int
    epochs: int
    """Epochs after which the trials were compared."""


def setting_importance(space: Mapping[str, Dimension], trials: Sequence[tuple[Params, float]], epochs: int) -> SettingImportance | None:
    """The importance of each setting of the space, given parameters and score of trials after so many epochs. Pure.

    None for fewer than LEAST_TRIALS, or if all have one score."""
    if len(trials) < LEAST_TRIALS or len({score for _, score in trials}) < 2:
        return None
    from scipy.stats import rankdata  # noqa: PLC0415, with scikit-learn, which takes a second
    from sklearn.ensemble import RandomForestRegressor  # noqa: PLC0415

    names = sorted(space)
    values = np.array([[_number(space[name], params[name]) for name in names] for params, _ in trials])
    ranks = rankdata([score for _, score in trials])
    forest = RandomForestRegressor(_TREES, min_samples_leaf=2, oob_score=True, random_state=0, n_jobs=1)
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # that few trials are out of no tree's bag
        forest.fit(values, ranks)
    falls = {name: _fall_of_r_squared(forest, values, ranks, column) for column, name in enumerate(names)}
    by_mean = sorted(falls, key=lambda name: -falls[name][0])
    return SettingImportance({name: falls[name] for name in by_mean}, float(forest.oob_score_), len(trials), epochs)


def _fall_of_r_squared(forest: Any, values: np.ndarray, ranks: np.ndarray, column: int) -> tuple[float, float]:
    """By how much R² falls when a column is shuffled, mean and deviation of _SHUFFLES times, which are predicted together."""
    random = np.random.default_rng(0)
    shuffled = np.tile(values, (_SHUFFLES, 1, 1))
    shuffled[:, :, column] = random.permuted(shuffled[:, :, column], axis=1)
    errors = (forest.predict(shuffled.reshape(-1, values.shape[1])).reshape(_SHUFFLES, -1) - ranks) ** 2
    error = np.mean((forest.predict(values) - ranks) ** 2)
    falls = (errors.mean(1) - error) / np.var(ranks)
    return float(falls.mean()), float(falls.std())


def _number(dimension: Dimension, value: Any) -> float:
    """A value as trees divide it: a choice by its place, and the logarithm of what varies by orders of magnitude."""
    if dimension.choice is not None:
        return float(dimension.choice.index(value))
    return log10(value) if dimension.log is not None else float(value)
