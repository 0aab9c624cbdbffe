"""Augmentations of pictures in training: random shifts, mirrors and masks, each a pure function of the key of its row.

Shifts and mirrors are those of He et al. 2016, section 4.2; masks are those of DeVries and Taylor 2017, "Improved regularization of
convolutional neural networks with cutout".
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from pipelines.config.tasks.vision import VisionSettings as Settings
from pipelines.tasks.constants import Constant
from pipelines.tasks.row_random import random_integers

_SHIFT, _FLIP, _MASK = range(3)


def change_pictures(pictures: Tensor, keys: Tensor, settings: Settings) -> Tensor:
    """Shift, mirror and mask each picture as `settings` say, all of them at random.

    `pictures` has the shape (rows, channels, height, width) and any dtype, which the result keeps; `keys` is ROW_KEYS, shape (rows,).
    """
    if settings.shift_pixels:
        pictures = _shift(pictures, random_integers(keys, 2, 2 * settings.shift_pixels + 1, _SHIFT), settings.shift_pixels)
    for axis in settings.flips:
        is_flipped = random_integers(keys, 1, 2, _FLIP + (axis << 3)) == 1
        pictures = torch.where(is_flipped[:, :, None, None], pictures.flip(2 + axis), pictures)
    if settings.masked_pixels:
        centres = [random_integers(keys, 1, length, _MASK + (axis << 3)) for axis, length in enumerate(pictures.shape[2:])]
        pictures = _mask(pictures, torch.cat(centres, 1), settings.masked_pixels)
    return pictures


def _shift(pictures: Tensor, starts: Tensor, most: int) -> Tensor:
    """Windows of the pictures' size, of pictures padded with 0 by `most` pixels on each side. `starts` has the shape (rows, 2)."""
    height, width = pictures.shape[2:]
    padded = functional.pad(pictures, (most,) * 4).movedim(1, -1)
    rows = torch.arange(len(pictures), device=pictures.device)[:, None, None]
    upright = (starts[:, :1] + torch.arange(height, device=starts.device))[:, :, None]
    across = (starts[:, 1:] + torch.arange(width, device=starts.device))[:, None, :]
    return padded[rows, upright, across].movedim(-1, 1)


def _mask(pictures: Tensor, centres: Tensor, side: int) -> Tensor:
    """Pictures with a square of `side` pixels replaced by the means of their channels. Part of it may lie beyond the edge."""
    is_masked = torch.ones((), dtype=torch.bool, device=pictures.device)
    for axis, length in enumerate(pictures.shape[2:]):
        offsets = torch.arange(length, device=centres.device) - centres[:, axis : axis + 1] + side // 2
        is_masked = is_masked & ((offsets >= 0) & (offsets < side)).unflatten(1, (length, 1) if axis == 0 else (1, length))
    means = pictures.to(torch.float32).mean((2, 3), keepdim=True).to(pictures.dtype)
    return torch.where(is_masked.unsqueeze(1), means, pictures)


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
