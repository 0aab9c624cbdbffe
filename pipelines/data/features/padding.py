"""Series of unequal length as arrays of one shape, with NumPy alone: ETL, the served model and exported folders call it."""

from collections.abc import Sequence
from typing import Any

import numpy as np


class SeriesError(ValueError):
    """Why a series cannot be encoded."""


def pad_series(values: Sequence[Any] | np.ndarray, channels: int, steps: int, keep_last: bool) -> np.ndarray:
    """float32 of shape (channels + 1, steps): the series from its first step on, and a last channel of 1 for each step, 0 for padding.

    `values` are numbers of shape (length,) or (length, channels), with NaN for what is missing. Of more than `steps` the last are kept, or
    the first. Raises SeriesError if there is no step, if steps have another number of channels, if a channel has no number, or for ±∞
    and numbers out of the range of float32.
    """
    series = np.asarray(values, np.float64)
    series = series.reshape(-1, 1) if series.ndim == 1 and channels == 1 else series
    if not len(series):
        raise SeriesError("it has no step")
    if series.shape[1:] != (channels,):
        raise SeriesError(f"its steps have not {channels} numbers each")
    filled = _fill_missing(series)
    kept = filled[-steps:] if keep_last else filled[:steps]
    padded = np.zeros((channels + 1, steps), np.float32)
    with np.errstate(over="ignore"):
        padded[:-1, : len(kept)] = kept.T
    if not np.isfinite(padded).all():
        raise SeriesError("it has ±∞, or a number that float32 does not hold")
    padded[-1, : len(kept)] = 1
    return padded + 0.0  # −0 becomes 0


def _fill_missing(series: np.ndarray) -> np.ndarray:
    """Replace NaN by the number of its channel in an earlier step, or else in a later one."""
    is_missing = np.isnan(series)
    if not is_missing.any():
        return series
    if is_missing.all(axis=0).any():
        raise SeriesError("a channel has no number")
    first = (~is_missing).argmax(axis=0)
    places = np.where(is_missing, 0, np.arange(len(series))[:, None])
    return np.take_along_axis(series, np.maximum(np.maximum.accumulate(places, axis=0), first), axis=0)
