"""Scores of predictions on held-out rows, by their names: a trial of models and the search for leaks compare with them."""

import numpy as np
from scipy.stats import rankdata

AUC, R_SQUARED, ACCURACY, AVERAGE_PRECISION = "AUC", "R²", "accuracy", "average precision"
EXPLAINED_ERRORS = "share of explained errors"


def rank_auc(is_positive: np.ndarray, predicted: np.ndarray) -> float:
    """The area under the ROC curve, by the ranks of the predictions of positive rows (Mann and Whitney 1947)."""
    positives, negatives = int(is_positive.sum()), int((~is_positive).sum())
    ranks = rankdata(predicted)[is_positive].sum() - positives * (positives + 1) / 2
    return float(ranks / max(positives * negatives, 1))


def r_squared(true: np.ndarray, predicted: np.ndarray) -> float:
    """The share of the variance that the predictions explain; of columns of several numbers, the mean."""
    return float(np.mean(1 - np.mean((true - predicted) ** 2, 0) / np.maximum(np.var(true, 0), 1e-300)))
