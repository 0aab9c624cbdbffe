"""Random numbers as a function of (seed, purpose, index): the same on every machine and in every version of NumPy."""

import numpy as np

from pipelines.runtime import philox

WORKER_SPEED, STEP_SPEED, CLIENT_ROWS, FAILURES = range(4)
"""The purposes; each has streams of its own."""
_MANTISSA_BITS = 53


def uniforms(count: int, seed: int, purpose: int, index: int = 0) -> np.ndarray:
    """float64 of shape (count,), each above 0 and below 1."""
    key, counter = np.array([seed % 2**64, purpose], np.uint64), np.array([0, 0, 0, index], np.uint64)
    words = philox.random_words(count, key, counter) >> np.uint64(64 - _MANTISSA_BITS)
    return (words + 0.5) / 2.0**_MANTISSA_BITS


def normals(count: int, seed: int, purpose: int, index: int = 0) -> np.ndarray:
    """float64 of shape (count,), of mean 0 and variance 1 (Box and Muller 1958)."""
    pairs = uniforms(2 * ((count + 1) // 2), seed, purpose, index).reshape(2, -1)
    radius, angle = np.sqrt(-2 * np.log(pairs[0])), 2 * np.pi * pairs[1]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]


def exponentials(count: int, seed: int, purpose: int, index: int = 0) -> np.ndarray:
    """float64 of shape (count,), of mean 1."""
    return -np.log(uniforms(count, seed, purpose, index))
