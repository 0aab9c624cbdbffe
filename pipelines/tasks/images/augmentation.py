"""Augmentations of pictures in training: random shifts, mirrors and masks, each a pure function of the key of its row.

Shifts and mirrors are those of He et al. 2016, section 4.2; masks are those of DeVries and Taylor 2017, "Improved regularization of
convolutional neural networks with cutout".
"""

import torch
from torch import Tensor
from torch.nn import functional

from pipelines.config.tasks.vision import VisionSettings as Settings
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
