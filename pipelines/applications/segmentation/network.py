"""A U-Net for images or volumes: Ronneberger, Fischer and Brox 2015; of volumes Çiçek et al. 2016.

As in nnU-Net (Isensee et al. 2021), a strided convolution halves the resolution, since the gradient of three-dimensional pooling is not
deterministic on a GPU, and every row is normalised by itself: group norm (Wu and He 2018) sees no other rows, as batch norm would.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipelines.tasks.data import Batch, scale_pixels

MOST_CHANNELS = 320
_GROUP_CHANNELS = 8
_Kernels = nn.Conv2d | nn.Conv3d | nn.ConvTranspose2d | nn.ConvTranspose3d
_CONVOLUTIONS = {2: (nn.Conv2d, nn.ConvTranspose2d, torch.channels_last), 3: (nn.Conv3d, nn.ConvTranspose3d, torch.channels_last_3d)}


class UNet(nn.Module):
    """Logits of shape (rows, classes, …) for pixels of shape (rows, channels, …), with a height, a width and perhaps a third axis, each a
    multiple of 2^depth."""

    def __init__(self, dimensions: int, channels: int, classes: int, width: int, depth: int) -> None:
        super().__init__()
        self.multiple = 2**depth
        widths = [min(width * 2**level, MOST_CHANNELS) for level in range(depth + 1)]
        inputs = [channels, *widths]
        self.down = nn.ModuleList(
            [DoubleConvolution(dimensions, inputs[level], widths[level], stride=1 + (level > 0)) for level in range(depth + 1)]
        )
        self.up = nn.ModuleList([Rise(dimensions, widths[level + 1], widths[level]) for level in reversed(range(depth))])
        self.output = _CONVOLUTIONS[dimensions][0](width, classes, 1)
        layout = _CONVOLUTIONS[dimensions][2]
        for module in self.modules():  # whose layout is ambiguous with one channel or pixel, and DDP warns if gradients have another one
            if isinstance(module, _Kernels) and module.weight.is_contiguous(memory_format=layout):
                module.weight.data = module.weight.data.to(memory_format=layout)

    def forward(self, pixels: Tensor) -> Tensor:
        levels = []
        for block in self.down:
            pixels = block(pixels)
            levels.append(pixels)
        levels.pop()
        for rise in self.up:
            pixels = rise(pixels, levels.pop())
        return self.output(pixels)


class DoubleConvolution(nn.Module):
    """Two convolutions, each with group norm and a leaky ReLU; the first one may halve the resolution."""

    def __init__(self, dimensions: int, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        convolution = _CONVOLUTIONS[dimensions][0]
        self.layers = nn.Sequential(
            *(convolution(inputs, outputs, 3, stride=stride, padding=1, bias=False), _norm(outputs), nn.LeakyReLU(0.01)),
            *(convolution(outputs, outputs, 3, padding=1, bias=False), _norm(outputs), nn.LeakyReLU(0.01)),
        )

    def forward(self, pixels: Tensor) -> Tensor:
        return self.layers(pixels)


class Rise(nn.Module):
    """Doubles the resolution by a transposed convolution, and joins the features of that resolution from the way down."""

    def __init__(self, dimensions: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.upscale = _CONVOLUTIONS[dimensions][1](inputs, outputs, 2, stride=2)
        self.block = DoubleConvolution(dimensions, 2 * outputs, outputs)

    def forward(self, coarse: Tensor, fine: Tensor) -> Tensor:
        return self.block(torch.cat([fine, self.upscale(coarse)], dim=1))


class OverPixels(nn.Module):
    """Applies a U-Net to the column of a batch: bytes become numbers from 0 to 1, sizes a multiple of the network's, and images larger than
    a tile are computed tile by tile."""

    def __init__(self, column: str, network: UNet, tile: Sequence[int] | None = None) -> None:
        super().__init__()
        self.column, self.network, self.tile = column, network, tuple(tile or ())

    def forward(self, batch: Batch) -> Tensor:
        """Logits of shape (rows, classes, …)."""
        pixels = scale_pixels(batch[self.column])
        size = tuple(pixels.shape[2:])
        is_larger = bool(self.tile) and any(length > most for length, most in zip(size, self.tile, strict=True))
        return self._average_tiles(pixels) if is_larger and not self.training else self._pad_and_apply(pixels)

    def _pad_and_apply(self, pixels: Tensor) -> Tensor:
        size = pixels.shape[2:]
        missing = [-length % self.network.multiple for length in size]
        if any(missing):
            edges = [edge for count in reversed(missing) for edge in (count // 2, count - count // 2)]
            pixels = functional.pad(pixels, edges, mode="replicate")
        output = self.network(pixels.contiguous(memory_format=_CONVOLUTIONS[len(size)][2]))
        for axis, (count, length) in enumerate(zip(missing, size, strict=True), 2):
            output = output.narrow(axis, count // 2, length) if count else output
        return output

    def _average_tiles(self, pixels: Tensor) -> Tensor:
        """Mean of the tiles that cover a pixel, weighted by how far it is from their edges."""
        size = tuple(pixels.shape[2:])
        tile = tuple(min(length, most) for length, most in zip(size, self.tile, strict=True))
        weight = tile_weights(tile, pixels)
        total, weights = None, pixels.new_zeros(size)
        for starts in product(*(tile_starts(length, part) for length, part in zip(size, tile, strict=True))):
            place: Any = (..., *(slice(start, start + part) for start, part in zip(starts, tile, strict=True)))
            output = self._pad_and_apply(pixels[place]).float() * weight
            total = output.new_zeros((*output.shape[:2], *size)) if total is None else total
            total[place] += output
            weights[place] += weight
        assert total is not None
        return total / weights


def tile_starts(length: int, tile: int) -> list[int]:
    """Where tiles begin that cover so many pixels, evenly spaced, each overlapping the next by half of it or more."""
    count = 1 + -(-(length - tile) // max(tile // 2, 1))
    return [round(number * (length - tile) / max(count - 1, 1)) for number in range(count)]


def tile_weights(tile: Sequence[int], like: Tensor) -> Tensor:
    """The weight of each pixel of a tile, which falls towards its edges, but not to 0."""
    weight = like.new_ones(())
    for length in tile:
        places = torch.arange(length, device=like.device, dtype=like.dtype)
        ramp = torch.minimum(places + 1, length - places) / ((length + 1) // 2)
        weight = weight.unsqueeze(-1) * ramp
    return weight


def _norm(channels: int) -> nn.GroupNorm:
    groups = max(channels // _GROUP_CHANNELS, 1)
    return nn.GroupNorm(groups if channels % groups == 0 else 1, channels)
