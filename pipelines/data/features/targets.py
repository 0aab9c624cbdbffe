"""Encoders of weights and of targets with rules of their own."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.config import features as config
from pipelines.data.features.base import Encoder, Input, array_with_nulls
from pipelines.data.features.raw import is_number, numbers
from pipelines.data.features.statistics import MOMENTS
from pipelines.data.versions.schema import Role, TensorColumn
from pipelines.errors import ConfigError

NEED_NUMBERS = "it takes numbers; CAST the column in the query"


class Weight(Encoder[config.WeightSettings]):
    """State: `mean`. The mean weight of the training split becomes 1, so that gradients keep their size."""

    @classmethod
    def needs(cls, settings: config.WeightSettings) -> frozenset[str]:
        return frozenset({MOMENTS})

    @classmethod
    def refusal(cls, settings: config.WeightSettings, kind: pa.DataType) -> str:
        return "" if is_number(kind) else NEED_NUMBERS

    @classmethod
    def fit(cls, settings: config.WeightSettings, inputs: Sequence[Input]) -> dict[str, Any]:
        """Raises ConfigError if the weights of the training split do not add up to more than 0."""
        mean = inputs[0].moments.mean or 0.0
        if mean <= 0:
            raise ConfigError(
                f"column {inputs[0].name} has the mean {mean:g} in the training split, but weights are at least 0, and some are more; "
                "use another column, or compute weights in the query"
            )
        return {"mean": mean}

    @classmethod
    def placeholder_state(cls, classes: int) -> dict[str, Any]:
        return {"mean": 1.0}

    def column(self, name: str, role: Role) -> TensorColumn:
        return TensorColumn(name=name, dtype="float32", role=role)

    def encode(self, *inputs: pa.Array) -> pa.Array:
        with np.errstate(over="ignore"):
            weights = (numbers(inputs[0]) / self.state["mean"]).astype(np.float32)
        return array_with_nulls(weights, ~(np.isfinite(weights) & (weights >= 0)))

    def decode(self, values: np.ndarray) -> np.ndarray:
        return values.astype(np.float64) * self.state["mean"]
