"""Encoder of series of numbers, each of its own length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.applications.series.padding import SeriesError, pad_series, read_series
from pipelines.data.features.base import Encoder, tensors_with_nulls
from pipelines.data.features.raw import is_list, is_number, numbers
from pipelines.data.versions.schema import Role, TensorColumn

if TYPE_CHECKING:
    from pipelines.applications.series.settings import SeriesSettings


_EXAMPLE_STEPS = 30
"""Most steps of an example, which people read."""


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
