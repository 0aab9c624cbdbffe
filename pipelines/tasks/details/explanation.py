"""Explanations of a model's outputs by the columns of the query that its inputs are encoded from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

SHOWN_FEATURES = 5
"""Features of a row whose contributions are kept, the largest first."""


@dataclass(frozen=True)
class Explanation:
    """The part of each feature in the outputs of a model, and in those of a few rows."""

    features: tuple[str, ...]
    importance: Mapping[str, np.ndarray]
    """Measures of the whole model by name, float64 of shape (features,); features are sorted by the first."""
    contributions: np.ndarray
    """float64 of shape (rows, features): what each adds to a row's output, compared with the mean over the training rows."""

    @classmethod
    def sum_by_feature(cls, names: Sequence[str], importance: Mapping[str, Tensor], contributions: np.ndarray) -> "Explanation":
        """Sum over inputs of the same name. `importance` is of shape (inputs,), `contributions` of shape (rows, inputs)."""
        features = tuple(dict.fromkeys(names))
        belongs = np.array([[name == feature for feature in features] for name in names], float)
        return cls(features, {name: values.numpy() @ belongs for name, values in importance.items()}, contributions @ belongs)

    def tables(self, rows: Sequence[int]) -> dict[str, Mapping[str, Sequence[Any]]]:
        """`importance`, and `contributions` of the rows of these numbers."""
        by_first = np.argsort(-next(iter(self.importance.values())), kind="stable")
        importance = {name: values[by_first].tolist() for name, values in self.importance.items()}
        largest = np.argsort(-np.abs(self.contributions), axis=1, kind="stable")[:, :SHOWN_FEATURES]
        return {
            "importance": {"feature": [self.features[place] for place in by_first], **importance},
            "contributions": {
                "row": np.repeat(rows, largest.shape[1]).tolist(),
                "feature": [self.features[place] for place in largest.ravel()],
                "contribution": np.take_along_axis(self.contributions, largest, 1).ravel().tolist(),
            },
        }
