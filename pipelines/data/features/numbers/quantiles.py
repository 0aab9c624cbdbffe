"""Encoders of a number by quantiles of the training split: quantile, normal_quantile, robust.

All take their points from the sorted sample by index, without arithmetic that other machines might round differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pipelines.data.features.base import MOMENTS, SAMPLE, Input, array_with_nulls
from pipelines.data.features.numbers.scaling import NumberEncoder
from pipelines.data.features.phrases import list_first
from pipelines.data.features.raw import numbers
from pipelines.data.versions.schema import Role, TensorColumn

if TYPE_CHECKING:
    from pipelines.config.features.numbers import NormalQuantileSettings, QuantileSettings, RobustSettings

_LIMIT = 3.0
"""Numbers encoded by `robust` are nearer to 0 than this."""
_FAR = 1e300
"""Farther from the median, in scales, numbers are as far as this: their quotient would be infinite."""


class Quantile(NumberEncoder["QuantileSettings"]):
    """State: `edges`, sorted and distinct; bin b has edges[b − 1] ≤ x < edges[b]. Without imputation, the last bin is for NULL."""

    @classmethod
    def needs(cls, settings: QuantileSettings) -> frozenset[str]:
        return super().needs(settings) | {MOMENTS, SAMPLE}

    @classmethod
    def fit(cls, settings: QuantileSettings, inputs: Sequence[Input]) -> dict[str, Any]:
        sample = inputs[0].sample
        edges = np.unique(sample[len(sample) * np.arange(1, settings.bins) // settings.bins])
        return super().fit(settings, inputs) | {"edges": edges[edges > sample[0]].tolist()}

    @classmethod
    def placeholder_state(cls, classes: int) -> dict[str, Any]:
        return super().placeholder_state(classes) | {"edges": [0.0]}

    def column(self, name: str, role: Role) -> TensorColumn:
        bins = len(self.state["edges"]) + 1 + (self.state["impute"] is None)
        return TensorColumn(name=name, dtype="int32", role=role, cardinality=bins)

    def encode(self, *inputs: pa.Array) -> pa.Array:
        values = self.impute(numbers(inputs[0]))
        bins = self.transform(values).astype(np.int32)
        if self.state["impute"] is None:
            bins[np.isnan(values)] = len(self.state["edges"]) + 1
        return array_with_nulls(bins, np.isinf(values))

    @property
    def method(self) -> str:
        edges = self.state["edges"]
        return f"the number of one of {len(edges) + 1} bins, with edges {list_first(edges)}{self.missing_clause}"

    def names(self, count: int) -> list[str]:
        edges = [f"{edge:g}" for edge in self.state["edges"]]
        between = [f"{low} to below {high}" for low, high in pairwise(edges)]
        bins = [f"below {edges[0]}", *between, f"{edges[-1]} and above"] if edges else ["all"]
        return [*bins, "missing"][:count]

    def transform(self, values: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.state["edges"], values, side="right")


class NormalQuantile(NumberEncoder["NormalQuantileSettings"]):
    """State: `points` of the distribution and their normal `deviates`. Values between points are interpolated, values beyond the first
    and the last are clipped. The rank of a point is the mean rank of its ties in the sample, so deviates are finite.
    """

    @classmethod
    def needs(cls, settings: NormalQuantileSettings) -> frozenset[str]:
        return super().needs(settings) | {MOMENTS, SAMPLE}

    @classmethod
    def fit(cls, settings: NormalQuantileSettings, inputs: Sequence[Input]) -> dict[str, Any]:
        sample = inputs[0].sample
        last = settings.quantiles - 1
        points = np.unique(sample[np.arange(last + 1) * (len(sample) - 1) // last])
        ranks = np.searchsorted(sample, points, side="left") + np.searchsorted(sample, points, side="right")
        deviates = [NormalDist().inv_cdf(int(rank) / (2 * len(sample))) for rank in ranks]
        return super().fit(settings, inputs) | {"points": points.tolist(), "deviates": deviates}

    @classmethod
    def placeholder_state(cls, classes: int) -> dict[str, Any]:
        return super().placeholder_state(classes) | {"points": [0.0, 1.0], "deviates": [0.0, 1.0]}

    @property
    def method(self) -> str:
        return f"its quantile among {len(self.state['points'])} points, as a normally distributed number{self.missing_clause}"

    def transform(self, values: np.ndarray) -> np.ndarray:
        deviates = np.interp(values, self.state["points"], self.state["deviates"])
        return np.where(np.isinf(values), values, deviates)

    def decode(self, values: np.ndarray) -> np.ndarray:
        return np.interp(values.astype(np.float64), self.state["deviates"], self.state["points"])


class Robust(NumberEncoder["RobustSettings"]):
    """State: `median` and `scale`, which is the interquartile range; half the range if that is 0, and 1 if this is 0 as well."""

    @classmethod
    def needs(cls, settings: RobustSettings) -> frozenset[str]:
        return super().needs(settings) | {MOMENTS, SAMPLE}

    @classmethod
    def fit(cls, settings: RobustSettings, inputs: Sequence[Input]) -> dict[str, Any]:
        sample, moments = inputs[0].sample, inputs[0].moments
        assert moments.minimum is not None and moments.maximum is not None
        low, median, high = (float(sample[len(sample) * quarters // 4]) for quarters in (1, 2, 3))
        scale = high - low or (moments.maximum - moments.minimum) / 2 or 1.0
        return super().fit(settings, inputs) | {"median": median, "scale": scale}

    @classmethod
    def placeholder_state(cls, classes: int) -> dict[str, Any]:
        return super().placeholder_state(classes) | {"median": 0.0, "scale": 1.0}

    def transform(self, values: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            scaled = np.clip((values - self.state["median"]) / self.state["scale"], -_FAR, _FAR)
        return np.where(np.isinf(values), values, scaled / np.hypot(1.0, scaled / _LIMIT))

    def decode(self, values: np.ndarray) -> np.ndarray:
        """The number of an encoded value; of one beyond the limits, that of the last float32 before them."""
        last = float(np.nextafter(np.float32(_LIMIT), np.float32(0)))
        inside = np.clip(values.astype(np.float64), -last, last)
        return inside / np.sqrt(1 - np.square(inside / _LIMIT)) * self.state["scale"] + self.state["median"]
