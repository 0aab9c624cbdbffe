"""Predictions of masks, with NumPy alone: those of the served model and of exported folders."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np


def class_masks(output: np.ndarray, form: Mapping[str, Any], decode: Callable[[np.ndarray], np.ndarray]) -> dict[str, Sequence[Any]]:
    """The number of the most probable class of each pixel, nested lists of the mask's shape, and the share of pixels of each class."""
    predicted = output.argmax(axis=1)
    axes = tuple(range(1, predicted.ndim))
    shares = {f"share_{name}": (predicted == number).mean(axis=axes).tolist() for number, name in enumerate(form["classes"])}
    return {"prediction": predicted.tolist(), **shares}
