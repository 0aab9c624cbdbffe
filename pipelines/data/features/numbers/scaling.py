"""Encoders of single numbers: standardize, minmax, log1p, identity."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import numpy as np
import pyarrow as pa
import pyarrow.types as types

from pipelines.data.features.base import MOMENTS, SAMPLE, Encoder, Input, array_with_nulls
from pipelines.data.features.phrases import show_briefly
from pipelines.data.features.raw import is_list, is_number, numbers
from pipelines.data.versions.schema import Dtype, Role, TensorColumn
from pipelines.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.config.features.numbers import IdentitySettings, MinMaxSettings, NumericSettings, StandardizeSettings

Settings = TypeVar("Settings", bound="NumericSettings")


class NumberEncoder(Encoder[Settings]):
    """Base class of encoders from float64 to one value per row. NULL and NaN are imputed or kept according to the settings, ±∞ is refused.

    State: `impute`, the number that replaces NULL and NaN, or None.
    """

    @classmethod
    def needs(cls, settings: Settings) -> frozenset[str]:
        return imputation_needs(settings)

    @classmethod
    def refusal(cls, settings: Settings, kind: pa.DataType) -> str:
        return "" if is_number(kind) else "it takes numbers; CAST the column in the query, or use vocabulary, hash or label"

    @classmethod
    def fit(cls, settings: Settings, inputs: Sequence[Input]) -> dict[str, Any]:
        return {"impute": fill_value(settings, inputs[0])}

    @classmethod
    def placeholder_state(cls, classes: int) -> dict[str, Any]:
        return {"impute": None}

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

    @classmethod
    def needs(cls, settings: StandardizeSettings) -> frozenset[str]:
        return super().needs(settings) | {MOMENTS}

    @classmethod
    def fit(cls, settings: StandardizeSettings, inputs: Sequence[Input]) -> dict[str, Any]:
        moments = inputs[0].moments
        return super().fit(settings, inputs) | {"mean": moments.mean, "deviation": moments.deviation or 1.0}

    @classmethod
    def placeholder_state(cls, classes: int) -> dict[str, Any]:
        return super().placeholder_state(classes) | {"mean": 0.0, "deviation": 1.0}

    @property
    def method(self) -> str:
        return f"(x − {show_briefly(self.state['mean'])}) / {show_briefly(self.state['deviation'])}{self.missing_clause}"

    def transform(self, values: np.ndarray) -> np.ndarray:
        return (values - self.state["mean"]) / self.state["deviation"]

    def decode(self, values: np.ndarray) -> np.ndarray:
        return values.astype(np.float64) * self.state["deviation"] + self.state["mean"]


class MinMax(NumberEncoder["MinMaxSettings"]):
    """State: `minimum` and `span`. A constant column is encoded as 0; values outside the range of the training split are outside [0, 1]."""

    @classmethod
    def needs(cls, settings: MinMaxSettings) -> frozenset[str]:
        return super().needs(settings) | {MOMENTS}

    @classmethod
    def fit(cls, settings: MinMaxSettings, inputs: Sequence[Input]) -> dict[str, Any]:
        moments = inputs[0].moments
        assert moments.minimum is not None and moments.maximum is not None
        return super().fit(settings, inputs) | {"minimum": moments.minimum, "span": moments.maximum - moments.minimum or 1.0}

    @classmethod
    def placeholder_state(cls, classes: int) -> dict[str, Any]:
        return super().placeholder_state(classes) | {"minimum": 0.0, "span": 1.0}

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

    @classmethod
    def refusal(cls, settings: IdentitySettings, kind: pa.DataType) -> str:
        if is_list(kind):
            return "arrays need their shape, such as {encoder: identity, shape: [28, 28]}"
        return super().refusal(settings, kind)

    @classmethod
    def fit(cls, settings: IdentitySettings, inputs: Sequence[Input]) -> dict[str, Any]:
        dtype = "float32" if settings.keeps_missing else identity_dtype(inputs[0].type)
        state = super().fit(settings, inputs) | {"dtype": dtype}
        if state["impute"] is not None and "int" in state["dtype"]:
            state["impute"] = int(_within(state["impute"], state["dtype"], inputs[0].name))
        return state

    @classmethod
    def placeholder_state(cls, classes: int) -> dict[str, Any]:
        return super().placeholder_state(classes) | {"dtype": "float32"}

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


def _within(value: float, dtype: str, column: str) -> int:
    """The value rounded to an integer of this dtype."""
    limits = np.iinfo(dtype)
    if not limits.min <= round(value) <= limits.max:
        raise ConfigError(f"column {column} is {dtype}, which cannot hold impute: {value:g}; CAST the column in the query")
    return round(value)
