"""Random numbers for each row of a batch, and augmentations of pictures made from them: shifts, mirrors, masks and blends.

Each is a pure function of the key of its row. It does not depend on the row's place in the batch or on the random state of torch, so it
is the same for any number of workers and after any restart.

The key is mixed by the finaliser of SplitMix64 (Steele, Lea and Flood 2014); the result seeds SplitMix64, whose outputs are the
numbers, one for each (purpose, index). All operations are on integers, so every device computes the same numbers.

Shifts and mirrors are those of He et al. 2016, section 4.2; masks are those of DeVries and Taylor 2017, "Improved regularization of
convolutional neural networks with cutout".
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from pipelines.config.tasks.task import VisionSettings as Settings
from pipelines.tasks.data import Constant

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_FACTORS = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)
_RANDOM_FLOATS = 2**24
"""Different random floats, each exact in float32."""
_SHIFT, _FLIP, _MASK = range(3)
"""Purposes of random numbers."""
_SHARE = 64
"""One more, beyond those of the changes of pictures."""
_LEVELS = 4096
"""Different shares of a blend, which are quantiles of their distribution."""


def random_integers(keys: Tensor, count: int, below: Tensor | int, purpose: int = 0) -> Tensor:
    """Random integers from 0 to `below` − 1, int64 of shape (rows, count). `below` is at most 2**31, or a tensor that broadcasts.

    `keys` is ROW_KEYS, int64 of shape (rows,). Different values of `purpose`, below 2**16, give independent numbers for one row.
    The bias is at most below / 2**31, which is negligible.
    """
    # The bits of a sum. TorchInductor computes sums and products of places in its own integers, which do not wrap at 64 bits.
    places = torch.arange(1, count + 1, device=keys.device) | purpose << 40
    words = _mix(_mix(keys)[:, None] + places * _GOLDEN)
    return (words >> 33 & 2**31 - 1) * below >> 31


def uniform_numbers(keys: Tensor, count: int, purpose: int) -> Tensor:
    """Random numbers from −1 to 1, float32 of shape (rows, count)."""
    return random_integers(keys, count, _RANDOM_FLOATS, purpose).to(torch.float32) * (2 / _RANDOM_FLOATS) - 1


def content_keys(*values: Tensor) -> Tensor:
    """Keys computed from the content of rows, int64 of shape (rows,), for evaluation, where batches have no ROW_KEYS.

    `values` are integers of shape (rows, …). Rows with equal content have equal keys.
    """
    keys = torch.zeros_like(values[0][:, 0], dtype=torch.int64)
    for column in torch.cat([value.flatten(1).long() for value in values], dim=1).unbind(1):
        keys = _mix(keys + column + _GOLDEN)
    return keys


def _mix(bits: Tensor) -> Tensor:
    for shift, factor in zip((30, 27), _FACTORS, strict=True):
        bits = (bits ^ _right(bits, shift)) * factor
    return bits ^ _right(bits, 31)


def _right(bits: Tensor, shift: int) -> Tensor:
    """Logical right shift; the shift of torch is arithmetic and would copy the sign."""
    return bits >> shift & (1 << 64 - shift) - 1


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
