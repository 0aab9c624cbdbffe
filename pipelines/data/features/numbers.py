"""Encoders of numbers: standardize, minmax, log1p and identity; quantile, normal_quantile and robust, by quantiles of the training split;
and fourier, sines and cosines of low-dimensional numbers, such as coordinates, at random frequencies.

Those by quantiles take their points from the sorted sample by index, without arithmetic that other machines might round differently.
Fourier features are those of Tancik et al. 2020, 'Fourier features let networks learn high frequency functions in low dimensional
domains'."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import numpy as np
import pyarrow as pa
import pyarrow.types as types

from pipelines.data.features.base import MOMENTS, SAMPLE, Encoder, Input, array_with_nulls, list_first, show_briefly, tensors_with_nulls
from pipelines.data.features.raw import is_list, is_number, numbers
from pipelines.data.versions.schema import Dtype, Role, TensorColumn
from pipelines.errors import ConfigError
from pipelines.runtime import philox

if TYPE_CHECKING:
    from pipelines.config.features.numbers import (
        FourierSettings,
        IdentitySettings,
        MinMaxSettings,
        NormalQuantileSettings,
        NumericSettings,
        QuantileSettings,
        RobustSettings,
        StandardizeSettings,
    )

Settings = TypeVar("Settings", bound="NumericSettings")
_LIMIT = 3.0
"""Numbers encoded by `robust` are nearer to 0 than this."""
_FAR = 1e300
"""Farther from the median, in scales, numbers are as far as this: their quotient would be infinite."""


class NumberEncoder(Encoder[Settings]):
    """Base class of encoders from float64 to one value per row. NULL and NaN are imputed or kept according to the settings, ±∞ is refused.
    State: `impute`, the number that replaces NULL and NaN, or None."""

    placeholder = {"impute": None}

    @classmethod
    def needs(cls, settings: Settings) -> frozenset[str]:
        return cls.statistics | imputation_needs(settings)

    @classmethod
    def refusal(cls, settings: Settings, kind: pa.DataType) -> str:
        return "" if is_number(kind) else "it takes numbers; CAST the column in the query, or use vocabulary, hash or label"

    @classmethod
    def fit(cls, settings: Settings, inputs: Sequence[Input]) -> dict[str, Any]:
        return {"impute": fill_value(settings, inputs[0])}

    def column(self, name: str, role: Role) -> TensorColumn:
        return TensorColumn(name=name, dtype="float32", role=role, missing=self.settings.keeps_missing)

    def encode(self, *inputs: pa.Array) -> pa.Array:
        values = self.impute(numbers(inputs[0]))
        with np.errstate(over="ignore"):
            encoded = self.transform(values).astype(np.float32)
        if not self.settings.keeps_missing:
            return array_with_nulls(encoded, ~np.isfinite(encoded))
        is_missing = np.isnan(values)
        encoded[is_missing] = np.nan  # of one sign and payload, whatever the query had
        return array_with_nulls(encoded, ~(np.isfinite(encoded) | is_missing))

    def impute(self, values: np.ndarray) -> np.ndarray:
        """float64 of shape (rows,), with NULL and NaN replaced if the settings impute."""
        return values if self.state["impute"] is None else np.where(np.isnan(values), self.state["impute"], values)

    @property
    def missing_clause(self) -> str:
        """The end of a description: how NULL and NaN are encoded; empty if such rows are refused."""
        if self.settings.keeps_missing:
            return ", with NaN where it is missing"
        return "" if self.state["impute"] is None else f", with {show_briefly(self.state['impute'])} where it is missing"

    @abstractmethod
    def transform(self, values: np.ndarray) -> np.ndarray:
        """Map float64 to float64, shape (rows,); NaN and ±∞ are unchanged. Results out of the range of float32 are refused."""


class Standardize(NumberEncoder["StandardizeSettings"]):
    """State: `mean` and `deviation`. A constant column is encoded as 0."""

    statistics = frozenset({MOMENTS})
    placeholder = {"impute": None, "mean": 0.0, "deviation": 1.0}

    @classmethod
    def fit(cls, settings: StandardizeSettings, inputs: Sequence[Input]) -> dict[str, Any]:
        moments = inputs[0].moments
        return super().fit(settings, inputs) | {"mean": moments.mean, "deviation": moments.deviation or 1.0}

    @property
    def method(self) -> str:
        return f"(x − {show_briefly(self.state['mean'])}) / {show_briefly(self.state['deviation'])}{self.missing_clause}"

    def transform(self, values: np.ndarray) -> np.ndarray:
        return (values - self.state["mean"]) / self.state["deviation"]

    def decode(self, values: np.ndarray) -> np.ndarray:
        return values.astype(np.float64) * self.state["deviation"] + self.state["mean"]


class MinMax(NumberEncoder["MinMaxSettings"]):
    """State: `minimum` and `span`. A constant column is encoded as 0; values outside the range of the training split are outside [0, 1]."""

    statistics = frozenset({MOMENTS})
    placeholder = {"impute": None, "minimum": 0.0, "span": 1.0}

    @classmethod
    def fit(cls, settings: MinMaxSettings, inputs: Sequence[Input]) -> dict[str, Any]:
        moments = inputs[0].moments
        assert moments.minimum is not None and moments.maximum is not None
        return super().fit(settings, inputs) | {"minimum": moments.minimum, "span": moments.maximum - moments.minimum or 1.0}

    def transform(self, values: np.ndarray) -> np.ndarray:
        return (values - self.state["minimum"]) / self.state["span"]

    def decode(self, values: np.ndarray) -> np.ndarray:
        return values.astype(np.float64) * self.state["span"] + self.state["minimum"]


class Log1p(NumberEncoder["NumericSettings"]):
    def transform(self, values: np.ndarray) -> np.ndarray:
        return np.copysign(np.log1p(np.abs(values)), values)

    def decode(self, values: np.ndarray) -> np.ndarray:
        wide = values.astype(np.float64)
        return np.copysign(np.expm1(np.abs(wide)), wide)


class Identity(NumberEncoder["IdentitySettings"]):
    """State: `dtype`. Integers of up to 64 bits keep their type, booleans become uint8, everything else float32, and so do columns whose
    missing values are kept."""

    placeholder = {"impute": None, "dtype": "float32"}

    @classmethod
    def refusal(cls, settings: IdentitySettings, kind: pa.DataType) -> str:
        if is_list(kind):
            return "arrays need their shape, such as {encoder: identity, shape: [28, 28]}"
        return super().refusal(settings, kind)

    @classmethod
    def fit(cls, settings: IdentitySettings, inputs: Sequence[Input]) -> dict[str, Any]:
        dtype = "float32" if settings.keeps_missing else identity_dtype(inputs[0].type)
        state = super().fit(settings, inputs) | {"dtype": dtype}
        if state["impute"] is not None and "int" in dtype:
            limits, fill = np.iinfo(dtype), round(state["impute"])
            if not limits.min <= fill <= limits.max:
                raise ConfigError(
                    f"column {inputs[0].name} is {dtype}, which cannot hold impute: {state['impute']:g}; CAST the column in the query"
                )
            state["impute"] = fill
        return state

    def column(self, name: str, role: Role) -> TensorColumn:
        return TensorColumn(name=name, dtype=self.state["dtype"], role=role, missing=self.settings.keeps_missing)

    def encode(self, *inputs: pa.Array) -> pa.Array:
        if self.state["dtype"] == "float32":
            return super().encode(*inputs)
        integers = inputs[0].cast(pa.from_numpy_dtype(np.dtype(self.state["dtype"])))
        return integers if self.state["impute"] is None else integers.fill_null(self.state["impute"])

    def transform(self, values: np.ndarray) -> np.ndarray:
        return values


def imputation_needs(settings: NumericSettings) -> frozenset[str]:
    return frozenset({"mean": {MOMENTS}, "median": {MOMENTS, SAMPLE}}.get(str(settings.impute), ()))


def fill_value(settings: NumericSettings, column: Input) -> float | None:
    """The number that replaces NULL and NaN; None if such rows are refused, or the values kept."""
    if isinstance(settings.impute, float):
        return settings.impute
    if settings.impute == "mean":
        return column.moments.mean
    return float(np.median(column.sample)) if settings.impute == "median" else None


def identity_dtype(kind: pa.DataType) -> str:
    """The dtype of unchanged values of this Arrow type."""
    if types.is_boolean(kind):
        return "uint8"
    return str(kind) if types.is_integer(kind) and str(kind) in get_args(Dtype) else "float32"


class Quantile(NumberEncoder["QuantileSettings"]):
    """State: `edges`, sorted and distinct; bin b has edges[b − 1] ≤ x < edges[b]. Without imputation, the last bin is for NULL."""

    statistics = frozenset({MOMENTS, SAMPLE})
    placeholder = {"impute": None, "edges": [0.0]}

    @classmethod
    def fit(cls, settings: QuantileSettings, inputs: Sequence[Input]) -> dict[str, Any]:
        sample = inputs[0].sample
        edges = np.unique(sample[len(sample) * np.arange(1, settings.bins) // settings.bins])
        return super().fit(settings, inputs) | {"edges": edges[edges > sample[0]].tolist()}

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
    """State: `points` of the distribution and their normal `deviates`. Values between points are interpolated, values beyond the first and
    the last are clipped. The rank of a point is the mean rank of its ties in the sample, so deviates are finite."""

    statistics = frozenset({MOMENTS, SAMPLE})
    placeholder = {"impute": None, "points": [0.0, 1.0], "deviates": [0.0, 1.0]}

    @classmethod
    def fit(cls, settings: NormalQuantileSettings, inputs: Sequence[Input]) -> dict[str, Any]:
        sample = inputs[0].sample
        last = settings.quantiles - 1
        points = np.unique(sample[np.arange(last + 1) * (len(sample) - 1) // last])
        ranks = np.searchsorted(sample, points, side="left") + np.searchsorted(sample, points, side="right")
        deviates = [NormalDist().inv_cdf(int(rank) / (2 * len(sample))) for rank in ranks]
        return super().fit(settings, inputs) | {"points": points.tolist(), "deviates": deviates}

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

    statistics = frozenset({MOMENTS, SAMPLE})
    placeholder = {"impute": None, "median": 0.0, "scale": 1.0}

    @classmethod
    def fit(cls, settings: RobustSettings, inputs: Sequence[Input]) -> dict[str, Any]:
        sample, moments = inputs[0].sample, inputs[0].moments
        assert moments.minimum is not None and moments.maximum is not None
        low, median, high = (float(sample[len(sample) * quarters // 4]) for quarters in (1, 2, 3))
        scale = high - low or (moments.maximum - moments.minimum) / 2 or 1.0
        return super().fit(settings, inputs) | {"median": median, "scale": scale}

    def transform(self, values: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            scaled = np.clip((values - self.state["median"]) / self.state["scale"], -_FAR, _FAR)
        return np.where(np.isinf(values), values, scaled / np.hypot(1.0, scaled / _LIMIT))

    def decode(self, values: np.ndarray) -> np.ndarray:
        """The number of an encoded value; of one beyond the limits, that of the last float32 before them."""
        last = float(np.nextafter(np.float32(_LIMIT), np.float32(0)))
        inside = np.clip(values.astype(np.float64), -last, last)
        return inside / np.sqrt(1 - np.square(inside / _LIMIT)) * self.state["scale"] + self.state["median"]


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
        # Standard normal deviates from Philox words (Box and Muller 1958); those of NumPy may change between versions.
        words = philox.random_words(2 * len(inputs) * settings.frequencies, key=settings.seed)
        uniform = ((words >> np.uint64(11)) * 2.0**-53).reshape(2, len(inputs), settings.frequencies)
        normal = np.sqrt(-2 * np.log1p(-uniform[0])) * np.cos(2 * np.pi * uniform[1])
        return {
            "impute": [fill_value(settings, column) for column in inputs],
            "mean": [column.moments.mean for column in inputs],
            "deviation": [column.moments.deviation or 1.0 for column in inputs],
            "frequencies": (settings.scale * normal).tolist(),
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
