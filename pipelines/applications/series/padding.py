"""Series of unequal length as arrays of one shape, with NumPy alone: ETL, the served model and exported folders call it."""

from typing import Any

import numpy as np

MOST = 1e15
"""The largest number of a series: sums of squares of larger ones do not fit into float32."""


class SeriesError(ValueError):
    """Why a series cannot be encoded."""


def pad_series(series: np.ndarray, channels: int, steps: int, keep_last: bool) -> np.ndarray:
    """float32 of shape (channels + 1, steps): the series from its first step on, and a last channel of 1 for each step, 0 for padding.

    `series` is float64 of shape (length,) or (length, channels), with NaN for what is missing. Of more than `steps` the last are kept, or
    the first, of which no later one fills a gap. Raises SeriesError if there is no step, if steps have another number of channels, if a
    channel has no number, or if a kept one is beyond MOST.
    """
    series = series.reshape(-1, 1) if series.ndim == 1 and channels == 1 else series
    if not len(series):
        raise SeriesError("it has no step")
    if series.shape[1:] != (channels,):
        raise SeriesError("its steps have another number of channels")
    kept = _fill_missing(series)[-steps:] if keep_last else _fill_missing(series[:steps])
    if (np.abs(kept) > MOST).any():
        raise SeriesError("it has ±∞, or a number beyond [1e15]")
    padded = np.zeros((channels + 1, steps), np.float32)
    padded[:-1, : len(kept)] = kept.T
    padded[-1, : len(kept)] = 1
    return padded + 0.0  # −0 becomes 0


def read_series(value: Any) -> np.ndarray:
    """A list of numbers, or of lists of them, as JSON has it: float64, with NaN for None. Raises SeriesError if steps differ in their
    channels."""
    steps = list(value)
    if not any(isinstance(step, (list, tuple, np.ndarray)) for step in steps):
        return np.array([np.nan if step is None else float(step) for step in steps])
    if any(step is None for step in steps) or len({len(step) for step in steps}) != 1:
        raise SeriesError("its steps have not all the same channels")
    return np.array([[np.nan if number is None else float(number) for number in step] for step in steps])


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
