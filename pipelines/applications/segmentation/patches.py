"""Parts of images and their masks for training, cut out and changed at random: each a pure function of its row's key.

Displacements are as in Ronneberger et al. 2015: random vectors at a coarse grid, smooth in between.
"""

from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor
from torch.nn import functional

from pipelines.tasks.row_random import random_integers

_PLACE, _FLIP, _CURVE, _BEND = range(4)
_STEPS = 2**24
"""Different random floats, each exact in float32."""


@dataclass(frozen=True)
class Patches:
    """How parts are cut out of images with the shape `size`, and how they are changed."""

    size: tuple[int, ...]
    """Of an image: two or three numbers."""
    part: tuple[int, ...]
    count: int = 1
    """Parts of each image."""
    flips: tuple[int, ...] = ()
    elastic: float = 0.0
    points: int = 4
    jitter: float = 0.0

    @property
    def draws(self) -> bool:
        return bool(self.part != self.size or self.flips or self.elastic or self.jitter)

    def __call__(self, pixels: Tensor, masks: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Cut parts out of float pixels, shape (rows, channels, …), and of masks, shape (rows, …).

        Returns (rows · count, channels, …) and (rows · count, …), those of a row beside each other.
        """
        starts = torch.stack(
            [
                random_integers(keys, self.count, length - part + 1, _PLACE + (axis << 3))
                for axis, (length, part) in enumerate(zip(self.size, self.part, strict=True))
            ],
            -1,
        )
        cut = self._bend if self.elastic and len(keys) else self._cut
        parts, part_masks = cut(pixels, masks, starts, keys)
        for axis in self.flips:
            is_flipped = random_integers(keys, self.count, 2, _FLIP + (axis << 3)).reshape(-1, *[1] * len(self.size)) == 1
            parts = torch.where(is_flipped.unsqueeze(1), parts.flip(2 + axis), parts)
            part_masks = torch.where(is_flipped, part_masks.flip(1 + axis), part_masks)
        if self.jitter:
            parts = change_curve(parts, (1 + self.jitter) ** _uniform(keys, self.count, _CURVE).reshape(-1))
        return parts, part_masks

    def _cut(self, pixels: Tensor, masks: Tensor, starts: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Parts that begin at `starts`, shape (rows, count, axes)."""
        rows = torch.arange(len(keys), device=keys.device).reshape(-1, *[1] * (len(self.size) + 1))
        places = []
        for axis, length in enumerate(self.part):
            along = torch.arange(length, device=keys.device).reshape([-1 if other == axis else 1 for other in range(len(self.size))])
            places.append(starts[..., axis].reshape(*starts.shape[:2], *[1] * len(self.size)) + along)
        cut = pixels.movedim(1, -1)[(rows, *places)]
        return cut.flatten(0, 1).movedim(-1, 1), masks[(rows, *places)].flatten(0, 1)

    def _bend(self, pixels: Tensor, masks: Tensor, starts: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Parts whose pixels come from places that random vectors displace, with the pixel at the edge for those outside."""
        axes, rows = len(self.size), len(keys)
        vectors = torch.stack(
            [
                _uniform(keys, self.count * self.points**axes, _BEND + (axis << 3)).reshape(-1, *[self.points] * axes)
                for axis in range(axes)
            ],
            1,
        )
        mode = "bilinear" if axes == 2 else "trilinear"
        shifts = functional.interpolate(vectors * (sqrt(3) * self.elastic), size=self.part, mode=mode, align_corners=True)
        grid = []
        for axis, (length, part) in enumerate(zip(self.size, self.part, strict=True)):
            along = torch.arange(part, device=keys.device).reshape([-1 if other == axis else 1 for other in range(axes)])
            place = starts[..., axis].reshape(-1, *[1] * axes) + along + shifts[:, axis]
            grid.append((2 * place + 1) / length - 1)
        # Parts of a row lie one below the other, so that the row's pixels are there once.
        places = torch.stack(grid[::-1], -1).reshape(rows, self.count * self.part[0], *self.part[1:], axes)
        shape = (rows, -1, self.count, *self.part)
        parts = functional.grid_sample(pixels, places, "bilinear", "border", align_corners=False)
        bent = functional.grid_sample(masks.unsqueeze(1).to(pixels.dtype), places, "nearest", "border", align_corners=False)
        return parts.reshape(shape).transpose(1, 2).flatten(0, 1), bent.reshape(shape)[:, 0].flatten(0, 1).to(masks.dtype)


def change_curve(parts: Tensor, powers: Tensor) -> Tensor:
    """Raise the pixels of each part, scaled to numbers from 0 at its lowest to 1 at its highest, to a power of shape (parts,)."""
    flat = parts.flatten(1)
    low, high = flat.amin(1, keepdim=True), flat.amax(1, keepdim=True)
    span = (high - low).clamp(min=1e-12)
    return (((flat - low) / span) ** powers.unsqueeze(1) * span + low).reshape(parts.shape)


def _uniform(keys: Tensor, count: int, purpose: int) -> Tensor:
    """Random numbers from -1 to 1, float32 of shape (rows, count)."""
    return random_integers(keys, count, _STEPS, purpose).to(torch.float32) * (2 / _STEPS) - 1
