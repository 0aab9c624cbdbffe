"""Metrics of weighted rows, and the paired bootstrap of two models' metrics.

A bootstrap draws as many rows as there are, with replacement; a row that is drawn k times has the weight k in both models' metrics
(Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 16).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipelines.tasks.metrics import roc_area

Floats = NDArray[np.float64]
Metric = Callable[[Floats], float]
"""A metric of rows as a function of their weights, float64 of shape (rows,)."""


def class_metric(name: str, truth: NDArray[np.int64], probabilities: Floats) -> Metric:
    """`auc` (of two classes), `accuracy` or `loss` of rows with these classes, shape (rows,), and predicted probabilities, shape
    (rows, classes)."""
    if name == "auc":
        return _auc(truth == 1, probabilities[:, 1])
    if name == "accuracy":
        return _mean((probabilities.argmax(1) == truth).astype(np.float64))
    chosen = probabilities[np.arange(len(truth)), truth]
    # A probability of 0 may be any below the spacing of numbers at 1: of two classes, one is computed as 1 minus the other.
    return _mean(-np.log(np.maximum(chosen, np.finfo(np.float64).eps)))


def quantity_metric(name: str, truth: Floats, predicted: Floats) -> Metric:
    """`rmse`, `mae` or `mse` of rows with these values and predictions, shape (rows,)."""
    if name == "mae":
        return _mean(np.abs(predicted - truth))
    mse = _mean((predicted - truth) ** 2)
    return mse if name == "mse" else lambda weights: mse(weights) ** 0.5


def _mean(values: Floats) -> Metric:
    return lambda weights: float(values @ weights / weights.sum())


def _auc(positive: NDArray[np.bool_], scores: Floats) -> Metric:
    """The area under the ROC curve; NaN without rows of both classes."""
    _, place = np.unique(scores, return_inverse=True)

    def value(weights: Floats) -> float:
        counts = (np.bincount(place, weights * is_of_class)[::-1] for is_of_class in (positive, ~positive))
        return roc_area(*counts)

    return value


@dataclass(frozen=True)
class BootstrapComparison:
    candidate: float
    champion: float
    lower: float
    """Bound of the difference: with the required confidence the candidate is better by at least this, which may be negative."""


def bootstrap_comparison(
    candidate: Metric, champion: Metric, is_higher_better: bool, rows: int, confidence: float, resamples: int, seed: int
) -> BootstrapComparison:
    """Compare two models' metrics of the same rows."""
    random, sign = np.random.default_rng(seed), 1.0 if is_higher_better else -1.0
    differences = np.empty(resamples)
    for number in range(resamples):
        weights = np.bincount(random.integers(0, rows, rows), minlength=rows).astype(np.float64)
        differences[number] = sign * (candidate(weights) - champion(weights))
    ones = np.ones(rows)
    # A sample of a small split may have rows of one class only, for which the AUC is not defined.
    return BootstrapComparison(candidate(ones), champion(ones), float(np.nanquantile(differences, 1 - confidence)))
