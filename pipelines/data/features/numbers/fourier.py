"""Fourier features: sines and cosines of low-dimensional numbers, such as coordinates, at random frequencies.

Tancik et al. 2020, "Fourier features let networks learn high frequency functions in low dimensional domains".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pipelines.data.features.base import MOMENTS, Encoder, Input, tensors_with_nulls
from pipelines.data.features.numbers.scaling import fill_value, imputation_needs
from pipelines.data.features.raw import is_number, numbers
from pipelines.data.versions.schema import Role, TensorColumn
from pipelines.runtime import philox

if TYPE_CHECKING:
    from pipelines.config.features.numbers import FourierSettings


class Fourier(Encoder["FourierSettings"]):
    """State: `impute`, `mean` and `deviation` of each input; `frequencies` in cycles per deviation, shape (inputs, frequencies)."""

    @classmethod
    def needs(cls, settings: FourierSettings) -> frozenset[str]:
        return imputation_needs(settings) | {MOMENTS}

    @classmethod
    def refusal(cls, settings: FourierSettings, kind: pa.DataType) -> str:
        return "" if is_number(kind) else "it takes numbers; CAST the column in the query"

    @classmethod
    def fit(cls, settings: FourierSettings, inputs: Sequence[Input]) -> dict[str, Any]:
        return {
            "impute": [fill_value(settings, column) for column in inputs],
            "mean": [column.moments.mean for column in inputs],
            "deviation": [column.moments.deviation or 1.0 for column in inputs],
            "frequencies": (settings.scale * _normal(settings.seed, (len(inputs), settings.frequencies))).tolist(),
        }

    def column(self, name: str, role: Role) -> TensorColumn:
        return TensorColumn(name=name, dtype="float32", shape=(2 * self.settings.frequencies,), role=role)

    def encode(self, *inputs: pa.Array) -> pa.Array:
        turns = np.zeros((len(inputs[0]), self.settings.frequencies))
        # The rounding of a matrix product depends on the number of rows; these sums round each row by itself.
        for number, column in enumerate(inputs):
            values, fill = numbers(column), self.state["impute"][number]
            if fill is not None:
                values = np.where(np.isnan(values), fill, values)
            standardised = (values - self.state["mean"][number]) / self.state["deviation"][number]
            turns += standardised[:, None] * np.array(self.state["frequencies"][number])
        refused = np.logical_not(np.isfinite(turns).all(axis=1))
        turns[refused] = 0.0
        angles = 2 * np.pi * turns
        waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
        return tensors_with_nulls(waves.astype(np.float32), refused)


def _normal(seed: int, shape: tuple[int, int]) -> np.ndarray:
    """Standard normal deviates from Philox words (Box and Muller 1958); those of NumPy may change between versions."""
    words = philox.random_words(2 * shape[0] * shape[1], key=seed)
    uniform = ((words >> np.uint64(11)) * 2.0**-53).reshape(2, *shape)
    return np.sqrt(-2 * np.log1p(-uniform[0])) * np.cos(2 * np.pi * uniform[1])
