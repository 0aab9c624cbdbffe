"""Views of images with boxes for training, mirrored, enlarged and coloured at random: each a pure function of its row's key."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from pipelines.applications.detection.peaks import NO_BOX
from pipelines.tasks.constants import Constant
from pipelines.tasks.row_random import random_integers

_FLIP, _ZOOM, _PLACE, _LIGHT = range(4)
_STEPS = 2**24
"""Different random floats, each exact in float32."""
_VISIBLE = 1 / 3
"""Part of a box that a view has to show, or it is none."""


@dataclass(frozen=True)
class Views:
    """How images of shape `size` are seen."""

    size: tuple[int, int]
    """Height and width."""
    flips: tuple[int, ...] = ()
    zoom: float = 0.0
    jitter: float = 0.0

    @cached_property
    def _width_and_height(self) -> Constant:
        return Constant(torch.tensor(self.size[::-1], dtype=torch.float32))

    @property
    def draws(self) -> bool:
        return bool(self.flips or self.zoom or self.jitter)

    def __call__(self, pixels: Tensor, boxes: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Views of float pixels, shape (rows, channels, height, width), from 0 to 1, and of boxes, shape (rows, most, 5)."""
        if self.zoom and len(keys):
            with torch.autocast(pixels.device.type, enabled=False):  # a grid in bf16 would move pixels against their boxes
                pixels, boxes = self._enlarge(pixels, boxes, keys)
        for axis in self.flips:
            is_flipped = random_integers(keys, 1, 2, _FLIP + (axis << 3)).reshape(-1) == 1
            pixels = torch.where(is_flipped[:, None, None, None], pixels.flip(2 + axis), pixels)
            boxes = torch.where(is_flipped[:, None, None], mirror(boxes, axis, self.size[axis]), boxes)
        if self.jitter and len(keys):
            pixels = self._colour(pixels, keys)
        return pixels, boxes

    def _enlarge(self, pixels: Tensor, boxes: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Enlarge around a random place; what lies outside an image has its mean colour."""
        factor = (1 + self.zoom) ** _uniform(keys, 1, _ZOOM)
        size = self._width_and_height.to(pixels.device)
        view_size = size / factor
        start = (size - view_size) * (_uniform(keys, 2, _PLACE) + 1) / 2
        # From −1 to 1 within the view to the same within the image.
        scale, shift = view_size / size, (2 * start + view_size) / size - 1
        matrices = torch.cat([torch.diag_embed(scale), shift.unsqueeze(-1)], -1)
        mean = pixels.mean((2, 3), keepdim=True)
        grid = functional.affine_grid(matrices, list(pixels.shape), align_corners=False)
        view = functional.grid_sample(pixels - mean, grid, "bilinear", "zeros", align_corners=False) + mean
        moved = (boxes[..., 1:] - start.repeat(1, 2).unsqueeze(1)) * factor.unsqueeze(-1)
        clipped = torch.minimum(moved.clamp(min=0), size.repeat(2))
        is_visible = areas(clipped) > _VISIBLE * areas(moved)
        number = torch.where(is_visible, boxes[..., 0], NO_BOX)
        return view, torch.cat([number.unsqueeze(-1), clipped], -1)

    def _colour(self, pixels: Tensor, keys: Tensor) -> Tensor:
        """Change contrast, brightness and each channel."""
        channels = pixels.shape[1]
        factors = (1 + self.jitter) ** _uniform(keys, 2 + channels, _LIGHT)
        contrast, brightness, tint = (part[..., None, None] for part in factors.unsqueeze(1).split([1, 1, channels], 2))
        contrast, brightness, tint = (part.squeeze(1) for part in (contrast, brightness, tint))
        mean = pixels.mean((1, 2, 3), keepdim=True)
        return (((pixels - mean) * contrast + mean * brightness) * tint**0.5).clamp(0, 1)


def mirror(boxes: Tensor, axis: int, length: int) -> Tensor:
    """The boxes of a mirrored image; axis 0 is the vertical one."""
    number, *edges = boxes.unbind(-1)
    low = 1 - axis
    edges[low], edges[low + 2] = length - edges[low + 2], length - edges[low]
    return torch.stack([number, *edges], -1)


def areas(boxes: Tensor) -> Tensor:
    """Of edges of shape (…, 4)."""
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def _uniform(keys: Tensor, count: int, purpose: int) -> Tensor:
    """Random numbers from -1 to 1, float32 of shape (rows, count)."""
    return random_integers(keys, count, _STEPS, purpose).to(torch.float32) * (2 / _STEPS) - 1
