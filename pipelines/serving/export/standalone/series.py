"""Encoder of series of unequal length."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pipelines.data.features.padding import SeriesError, pad_series
from pipelines.serving.export.standalone.columns import FAULTS, Column, encoder


@encoder("series")
def series(settings: Mapping[str, Any], state: Mapping[str, Any], column: Column) -> tuple[np.ndarray, np.ndarray]:
    encoded = np.zeros((len(column.values), settings["channels"] + 1, settings["steps"]), np.float32)
    refused = np.zeros(len(encoded), bool)
    for row, value in enumerate(column.values):
        try:
            encoded[row] = _pad(settings, value)
        except SeriesError:
            refused[row] = True
    return encoded, refused


def series_fault(settings: Mapping[str, Any], value: Any) -> str:
    """Why a series is refused; empty if it is not, and for NULL, of which there is no more to say."""
    if value is None:
        return ""
    try:
        _pad(settings, value)
    except SeriesError as error:
        return str(error)
    return ""


FAULTS["series"] = series_fault


def _pad(settings: Mapping[str, Any], value: Any) -> np.ndarray:
    return pad_series(_numbers(value), settings["channels"], settings["steps"], settings["keep"] == "last")


def _numbers(value: Any) -> np.ndarray:
    """A list of numbers, or of lists of them, with NaN for None. Raises SeriesError if steps differ in their channels."""
    steps = list(value or [])
    if not any(isinstance(step, list) for step in steps):
        return np.array([np.nan if step is None else float(step) for step in steps])
    if None in steps or len({len(step) for step in steps}) != 1:
        raise SeriesError("its steps have not all the same channels")
    return np.array([[np.nan if number is None else float(number) for number in step] for step in steps])
