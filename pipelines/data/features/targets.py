"""Encoders of weights and of targets with rules of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from pipelines.data.features.base import MOMENTS, WORDS, Encoder, Input, array_with_nulls, tensors_with_nulls
from pipelines.data.features.raw import elements, is_category, is_list, is_number, numbers
from pipelines.data.versions.schema import Role, TensorColumn
from pipelines.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.config.features.targets import CountSettings, LabelsSettings, VectorSettings, WeightSettings

LARGEST_COUNT = 2**24
NEED_NUMBERS = "it takes numbers; CAST the column in the query"

S = TypeVar("S", "WeightSettings", "CountSettings")


class _RelativeToMean(Encoder[S]):
    """Numbers of at least 0. State: `mean`, of the training split."""

    statistics = frozenset({MOMENTS})
    placeholder = {"mean": 1.0}

    @classmethod
    def refusal(cls, settings: S, kind: pa.DataType) -> str:
        return "" if is_number(kind) else NEED_NUMBERS

    def column(self, name: str, role: Role) -> TensorColumn:
        return TensorColumn(name=name, dtype="float32", role=role)


class Weight(_RelativeToMean["WeightSettings"]):
    """The mean weight of the training split becomes 1, so that gradients keep their size."""

    @classmethod
    def fit(cls, settings: WeightSettings, inputs: Sequence[Input]) -> dict[str, Any]:
        """Raises ConfigError if the weights of the training split do not add up to more than 0."""
        mean = inputs[0].moments.mean or 0.0
        if mean <= 0:
            raise ConfigError(
                f"column {inputs[0].name} has the mean {mean:g} in the training split, but weights are at least 0, and some are more; "
                "use another column, or compute weights in the query"
            )
        return {"mean": mean}

    def encode(self, *inputs: pa.Array) -> pa.Array:
        with np.errstate(over="ignore"):
            weights = (numbers(inputs[0]) / self.state["mean"]).astype(np.float32)
        return array_with_nulls(weights, ~(np.isfinite(weights) & (weights >= 0)))

    def decode(self, values: np.ndarray) -> np.ndarray:
        return values.astype(np.float64) * self.state["mean"]


class Count(_RelativeToMean["CountSettings"]):
    """Counts stay as they are; the outputs of a network are relative to their mean."""

    @classmethod
    def fit(cls, settings: CountSettings, inputs: Sequence[Input]) -> dict[str, Any]:
        """Raises ConfigError if no count of the training split is above 0."""
        mean = inputs[0].moments.mean or 0.0
        if mean <= 0:
            raise ConfigError(
                f"column {inputs[0].name} has the mean {mean:g} in the training split, but counts are at least 0, and some are more; "
                "use standardize for a number with a sign"
            )
        return {"mean": mean}

    def encode(self, *inputs: pa.Array) -> pa.Array:
        counts = numbers(inputs[0])
        is_count = (counts >= 0) & (counts <= LARGEST_COUNT) & (counts == np.floor(counts))
        return array_with_nulls(np.where(is_count, counts, 0).astype(np.float32), ~is_count)


class Vector(Encoder["VectorSettings"]):
    """State: `mean` and `deviation` of each column. A constant column is encoded as 0."""

    statistics = frozenset({MOMENTS})
    placeholder = {"mean": 0.0, "deviation": 1.0}

    @classmethod
    def refusal(cls, settings: VectorSettings, kind: pa.DataType) -> str:
        return "" if is_number(kind) else NEED_NUMBERS

    @classmethod
    def fit(cls, settings: VectorSettings, inputs: Sequence[Input]) -> dict[str, Any]:
        moments = [column.moments for column in inputs]
        return {"mean": [column.mean for column in moments], "deviation": [column.deviation or 1.0 for column in moments]}

    def column(self, name: str, role: Role) -> TensorColumn:
        return TensorColumn(name=name, dtype="float32", shape=(len(self.settings.columns),), role=role)

    def encode(self, *inputs: pa.Array) -> pa.Array:
        raw = np.stack([numbers(column) for column in inputs], axis=1)
        with np.errstate(over="ignore"):
            encoded = ((raw - self.state["mean"]) / self.state["deviation"]).astype(np.float32)
        refused = ~np.isfinite(encoded).all(axis=1)
        encoded[refused] = 0
        return tensors_with_nulls(encoded, refused)

    def decode(self, values: np.ndarray) -> np.ndarray:
        return values.astype(np.float64) * self.state["deviation"] + self.state["mean"]


class Labels(Encoder["LabelsSettings"]):
    """State: `classes`, the labels. Of whole numbers they are sorted as numbers, of all others as text."""

    statistics = frozenset({WORDS})

    @classmethod
    def refusal(cls, settings: LabelsSettings, kind: pa.DataType) -> str:
        if is_list(kind) and is_category(kind.value_type):
            return ""
        return "it takes arrays of text or numbers; split(…) in the query turns text into an array"

    @classmethod
    def fit(cls, settings: LabelsSettings, inputs: Sequence[Input]) -> dict[str, Any]:
        counts = inputs[0].counts
        frequent = counts.filter(pc.greater_equal(counts["count"], settings.min_count))["value"].to_pylist()
        if not frequent:
            raise ConfigError(
                f"column {inputs[0].name} has no label with {settings.min_count} occurrences in the training split; lower min_count, or "
                "use another column"
            )
        return {"classes": sorted(frequent, key=int if types.is_integer(inputs[0].type.value_type) else str)}

    @classmethod
    def placeholder_state(cls, classes: int) -> dict[str, Any]:
        return {"classes": [str(number) for number in range(classes)]}

    def __init__(self, settings: LabelsSettings, state: dict[str, Any]) -> None:
        super().__init__(settings, state)
        self._labels = pa.array(state["classes"], pa.string())

    def column(self, name: str, role: Role) -> TensorColumn:
        return TensorColumn(name=name, dtype="uint8", shape=(len(self._labels),), role=role)

    def encode(self, *inputs: pa.Array) -> pa.Array:
        labels, offsets = elements(inputs[0])
        number = pc.index_in(labels, self._labels).fill_null(-1).to_numpy(zero_copy_only=False)
        row = np.repeat(np.arange(len(inputs[0])), np.diff(offsets))
        encoded = np.zeros((len(inputs[0]), len(self._labels)), np.uint8)
        encoded[row[number >= 0], number[number >= 0]] = 1
        return tensors_with_nulls(encoded, inputs[0].is_null().to_numpy(zero_copy_only=False))
