"""Likelihoods of texts, with NumPy alone: those of the served model and of exported folders.

A text is evaluated from its start. Windows of an evaluation, in contrast, may start inside a text and contain several.
"""

from collections.abc import Callable, Mapping, Sequence
from math import log
from typing import Any

import numpy as np

Decode = Callable[[np.ndarray], np.ndarray]


def likelihoods(output: np.ndarray, form: Mapping[str, Any], decode: Decode) -> dict[str, Sequence[Any]]:
    """Nats per token, bits per byte, nats and tokens of each text, the end of the text included, from nats, tokens and bytes."""
    nats, tokens, size = output.astype(np.float64).T
    figures = {"nats_per_token": nats / tokens, "bits_per_byte": nats / log(2) / size, "nats": nats, "tokens": tokens}
    return {name: values.tolist() for name, values in figures.items()}


def word_likelihoods(output: np.ndarray, form: Mapping[str, Any], decode: Decode) -> dict[str, Sequence[Any]]:
    """Nats per word, unknown words, nats and words of each text, from nats, words and unknown words."""
    nats, tokens, unknown = output.astype(np.float64).T
    figures = {"nats_per_token": nats / tokens, "unknown": unknown, "nats": nats, "tokens": tokens}
    return {name: values.tolist() for name, values in figures.items()}
