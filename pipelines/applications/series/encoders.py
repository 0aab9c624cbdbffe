"""Encoder of series of numbers, each of its own length, as arrays of one shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.data.features.base import Encoder, tensors_with_nulls
from pipelines.data.features.raw import is_list, is_number, numbers
from pipelines.data.versions.schema import Role, TensorColumn

if TYPE_CHECKING:
    from pipelines.applications.series.settings import SeriesSettings


_EXAMPLE_STEPS = 30
"""Most steps of an example, which people read."""


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
    values = _fill_missing(series)[-steps:] if keep_last else _fill_missing(series[:steps])
    if (np.abs(values) > MOST).any():
        raise SeriesError("it has ±∞, or a number beyond [1e15]")
    padded = np.zeros((channels + 1, steps), np.float32)
    padded[:-1, : len(values)] = values.T
    padded[-1, : len(values)] = 1
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


class Series(Encoder["SeriesSettings"]):
    """float32 of shape (channels + 1, steps), as `pad_series` makes it; series that it refuses are refused."""

    @classmethod
    def refusal(cls, settings: SeriesSettings, kind: pa.DataType) -> str:
        depth = 0
        while is_list(kind):
            kind, depth = kind.value_type, depth + 1
        if is_number(kind) and (depth == 2 or (depth == 1 and settings.channels == 1)):
            return ""
        if settings.channels == 1:
            return "it takes arrays of numbers; make them in the query, as by array_agg or transform"
        return (
            f"with {settings.channels} channels it takes arrays of arrays of {settings.channels} numbers; make them in the query, as by "
            "transform"
        )

    def column(self, name: str, role: Role) -> TensorColumn:
        return TensorColumn(name=name, dtype="float32", shape=(self.settings.channels + 1, self.settings.steps), role=role)

    def encode(self, *inputs: pa.Array) -> pa.Array:
        series, encoded = inputs[0], np.zeros((len(inputs[0]), *self.column("", "feature").shape), np.float32)
        refused = np.zeros(len(encoded), bool)
        for row in range(len(encoded)):
            try:
                encoded[row] = pad_series(_values(series[row]), *self._limits)
            except SeriesError:
                refused[row] = True
        return tensors_with_nulls(encoded, refused)

    def fault(self, *values: Any) -> str:
        try:
            if values[0] is not None:
                pad_series(read_series(values[0]), *self._limits)
        except SeriesError as error:
            return str(error)
        return ""

    def example(self, kind: pa.DataType) -> Any:
        """A series that is cut, unless it may be long; its numbers all differ."""
        length = min(self.settings.steps + 1, _EXAMPLE_STEPS)
        steps = [[step * (channel + 1.5) for channel in range(self.settings.channels)] for step in range(length)]
        return steps if is_list(kind.value_type) else [step[0] for step in steps]

    @property
    def _limits(self) -> tuple[int, int, bool]:
        return self.settings.channels, self.settings.steps, self.settings.keep == "last"


def _values(series: pa.Scalar) -> np.ndarray:
    """The numbers of a series, float64 of shape (length,) or (length, channels). Raises SeriesError if steps differ in their channels."""
    if not series.is_valid or not len(series.values):
        return np.empty(0)
    steps = series.values
    if not is_list(steps.type):
        return numbers(steps)
    lengths = set(pc.list_value_length(steps).to_pylist())
    if len(lengths) != 1 or None in lengths:
        raise SeriesError("its steps have not all the same channels")
    return numbers(steps.flatten()).reshape(len(steps), -1)
