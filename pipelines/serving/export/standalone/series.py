"""Encoder of series of unequal length."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pipelines.applications.series.padding import SeriesError, pad_series, read_series, series_fault
from pipelines.serving.export.standalone.columns import FAULTS, Column, encoder


@encoder("series")
def series(settings: Mapping[str, Any], state: Mapping[str, Any], column: Column) -> tuple[np.ndarray, np.ndarray]:
    encoded = np.zeros((len(column.values), settings["channels"] + 1, settings["steps"]), np.float32)
    refused = np.zeros(len(encoded), bool)
    for row, value in enumerate(column.values):
        try:
            encoded[row] = pad_series(read_series(value or []), *_limits(settings))
        except SeriesError:
            refused[row] = True
    return encoded, refused


def _limits(settings: Mapping[str, Any]) -> tuple[int, int, bool]:
    return settings["channels"], settings["steps"], settings["keep"] == "last"


FAULTS["series"] = lambda settings, value: series_fault(value, *_limits(settings))
