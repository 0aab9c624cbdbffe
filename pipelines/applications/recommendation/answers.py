"""Predictions of next items, with NumPy alone: those of the served model and of exported folders."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.data.versions.schema import FIRST


def top_items(output: np.ndarray, form: Mapping[str, Any], decode: Callable[[np.ndarray], np.ndarray]) -> dict[str, Sequence[Any]]:
    """The predicted next item, and the items with the highest scores, best first; they may include items of the history."""
    scores = output[:, FIRST:]
    best = np.argsort(-scores, axis=1, kind="stable")[:, : form["count"]]
    items = np.asarray(decode(best + FIRST)).tolist()
    ordered = np.take_along_axis(scores, best, axis=1).astype(np.float64)
    return {"prediction": [row[0] for row in items], "items": items, "scores": ordered.tolist()}
