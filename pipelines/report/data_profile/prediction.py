"""How much of a target one column explains."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from pipelines.report.data_profile.coding import MISSING, as_numbers, count_distinct, encode_columns, is_numeric

_FIT, _TEST = slice(0, None, 2), slice(1, None, 2)
"""The sampled rows that a prediction is fitted on, and those that it is tried on."""
_LEAST_ERRORS = 5
"""Errors of the most frequent class below which no share of them is measured."""


def share_explained(column: pa.ChunkedArray, target: pa.ChunkedArray) -> float:
    """Share of a target that one column explains, on rows that the prediction was not fitted on: 1 for all, 0 for nothing.

    For numbers with more than 20 values it is the variance of their ranks, with the mean rank of each bin or category of the column as
    prediction; for classes, the share of the errors of the most frequent class that the most frequent class of each bin corrects.
    """
    return explainer(target)(column)


def explainer(target: pa.ChunkedArray) -> Callable[[pa.ChunkedArray], float]:
    """`share_explained` for many columns of one target, whose codes or ranks are computed once."""
    rows = np.arange(len(target))
    if is_numeric(target) and count_distinct(target) > 20:
        values = as_numbers(target)
        is_finite = np.isfinite(values)
        ranks = values[is_finite].argsort().argsort().astype(float)
        return lambda column: _share_of_ranks(_codes(column, rows)[is_finite], ranks)
    (classes,) = encode_columns(target, [target], bins=10**9, most=10**9)
    return lambda column: _share_of_classes(_codes(column, rows), classes - MISSING)


def _codes(column: pa.ChunkedArray, rows: np.ndarray) -> np.ndarray:
    (codes,) = encode_columns(column.take(rows[_FIT]), [column], bins=100, most=1_000)
    return codes


def _share_of_ranks(codes: np.ndarray, ranks: np.ndarray) -> float:
    means = _means(codes[_FIT], ranks[_FIT])
    errors = ranks[_TEST] - np.array([means.get(code, ranks[_FIT].mean()) for code in codes[_TEST]])
    spread = ((ranks[_TEST] - ranks[_FIT].mean()) ** 2).sum()
    return float(1 - (errors**2).sum() / spread) if spread else 0.0


def _share_of_classes(codes: np.ndarray, classes: np.ndarray) -> float:
    most = np.bincount(classes[_FIT]).argmax()
    distinct_codes, places = np.unique(codes, return_inverse=True)
    pairs, rows = np.unique(places[_FIT] * (classes.max() + 1) + classes[_FIT], return_counts=True)
    bins, bin_classes = np.divmod(pairs, classes.max() + 1)
    order = np.lexsort((-bin_classes, rows, bins))  # the last of each bin is its most frequent class, of equal ones the first
    likeliest = np.full(len(distinct_codes), most)
    likeliest[bins[order]] = bin_classes[order]
    wrong = (classes[_TEST] != likeliest[places[_TEST]]).sum()
    base = (classes[_TEST] != most).sum()
    return float(1 - wrong / base) if base >= _LEAST_ERRORS else 0.0


def _means(codes: np.ndarray, values: np.ndarray) -> dict[int, float]:
    distinct_codes, places = np.unique(codes, return_inverse=True)
    means = np.bincount(places, values) / np.bincount(places)
    return dict(zip(distinct_codes.tolist(), means.tolist(), strict=True))
