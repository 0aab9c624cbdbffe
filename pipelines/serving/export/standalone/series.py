"""Encoder of series of unequal length."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pipelines.data.features.padding import SeriesError, pad_series
from pipelines.serving.export.standalone.columns import Column, encoder


@encoder("series")
def series(settings: Mapping[str, Any], state: Mapping[str, Any], column: Column) -> tuple[np.ndarray, np.ndarray]:
    channels, steps = settings["channels"], settings["steps"]
    encoded = np.zeros((len(column.values), channels + 1, steps), np.float32)
    refused = np.zeros(len(encoded), bool)
    for row, value in enumerate(column.values):
        try:
            encoded[row] = pad_series(_numbers(value), channels, steps, settings["keep"] == "last")
        except (SeriesError, TypeError):
            refused[row] = True
    return encoded, refused


def _numbers(value: Any) -> np.ndarray:
    """A list of numbers, or of lists of them, with NaN for None. Raises SeriesError if steps differ in their channels."""
    steps = list(value or [])
    if not any(isinstance(step, list) for step in steps):
        return np.array([np.nan if step is None else float(step) for step in steps])
    if None in steps or len({len(step) for step in steps}) != 1:
        raise SeriesError("its steps have not all the same channels")
    return np.array([[np.nan if number is None else float(number) for number in step] for step in steps])
