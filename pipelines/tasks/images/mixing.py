"""Mixed pictures in training (Zhang et al. 2018, "mixup: Beyond empirical risk minimization"): each picture is blended with its
neighbour's, and its label is mixed alike.

Rows 2k and 2k + 1 of a pass are neighbours, and the share that a row keeps of itself is a function of its key. So where passes are divided
at even rows, the same pictures meet for any number of workers.
"""

import numpy as np
import torch
from torch import Tensor

from pipelines.tasks.constants import Constant
from pipelines.tasks.row_random import random_integers

_LEVELS = 4096
"""Number of different shares, which are quantiles of the distribution."""
_SHARE = 64
"""Purpose of random numbers, beyond those of the other changes of pictures."""


class Mixing:
    """Blends pictures by shares from the distribution Beta(alpha, alpha)."""

    def __init__(self, alpha: float) -> None:
        self._quantiles = Constant(torch.from_numpy(beta_quantiles(alpha, _LEVELS)).float())

    def mix(self, pictures: Tensor, keys: Tensor) -> Tensor:
        """Pictures of shape (rows, channels, height, width), blended; `keys` is ROW_KEYS, shape (rows,)."""
        return torch.lerp(pictures[neighbours(keys)], pictures, self.shares(keys)[:, None, None, None])

    def shares(self, keys: Tensor) -> Tensor:
        """The share that each row keeps of its picture, float32 of shape (rows,)."""
        return self._quantiles.to(keys.device)[random_integers(keys, 1, _LEVELS, _SHARE)[:, 0]]


def neighbours(keys: Tensor) -> Tensor:
    """The place of each row's neighbour, int64 of shape (rows,). A last row without one is its own."""
    return (torch.arange(len(keys), device=keys.device) ^ 1).clamp(max=len(keys) - 1)


def beta_quantiles(alpha: float, count: int) -> np.ndarray:
    """Quantiles of the distribution Beta(alpha, alpha) at the middles of `count` equal shares, an even number: float64 of shape (count,).

    The density of x**power is bounded below the median, and is summed there by the trapezoidal rule."""
    power = min(alpha, 1.0)
    values = np.linspace(0, 0.5**power, 4 * count + 1)
    lower = values ** (1 / power)
    density = lower ** (alpha - power) * (1 - lower) ** (alpha - 1)
    shares = np.concatenate([[0], np.cumsum(density[1:] + density[:-1])])
    below = np.interp((np.arange(count // 2) + 0.5) / count, shares / (2 * shares[-1]), values) ** (1 / power)
    return np.concatenate([below, 1 - below[::-1]])
