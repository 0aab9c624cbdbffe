"""A convolutional network over images with a feature pyramid (Lin et al. 2017).

Residual blocks (He et al. 2016) have group norm (Wu and He 2018), which sees no other rows, as batch norm would.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipelines.tasks.data import Batch, scale_pixels

_GROUP_CHANNELS = 8
FIRST_HEAT = -2.19
"""The logit at which heat begins: a probability of 0.1, as in CenterNet."""
FIRST_DISTANCE = 2.5
"""The logarithm at which distances begin, in pixels."""


class PyramidBlock(nn.Module):
    """Two 3x3 convolutions beside an identity; the first one may halve the resolution."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), norm(outputs), nn.ReLU(), nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        )
        self.norm = norm(outputs)
        changes = inputs != outputs or stride > 1
        self.shortcut = nn.Sequential(nn.AvgPool2d(stride, ceil_mode=True), nn.Conv2d(inputs, outputs, 1, bias=False)) if changes else None

    def forward(self, pixels: Tensor) -> Tensor:
        other = pixels if self.shortcut is None else self.shortcut(pixels)
        return functional.relu(self.norm(self.first(pixels)) + other)


class Pyramid(nn.Module):
    """Outputs of shape (rows, classes + 4, height / stride, width / stride), rounded up, for pixels of shape (rows, channels, …)."""

    def __init__(self, channels: int, classes: int, width: int, stages: int, blocks: int, stride: int, head: int) -> None:
        super().__init__()
        widths = [width * 2**stage for stage in range(stages)]
        self.stem = nn.Sequential(nn.Conv2d(channels, width, 3, 2, 1, bias=False), norm(width), nn.ReLU())
        inputs = [width, *widths]
        self.down = nn.ModuleList(
            nn.Sequential(
                *(PyramidBlock(inputs[stage] if not block else widths[stage], widths[stage], 1 if block else 2) for block in range(blocks))
            )
            for stage in range(stages)
        )
        self.finest = {4: 0, 8: 1}[stride]
        self.side = nn.ModuleList(nn.Conv2d(channels, head, 1) for channels in widths[self.finest :])
        self.smooth = nn.Sequential(norm(head), nn.ReLU(), nn.Conv2d(head, head, 3, 1, 1, bias=False), norm(head), nn.ReLU())
        self.heat, self.distance = (branch(head, outputs, first) for outputs, first in ((classes, FIRST_HEAT), (4, FIRST_DISTANCE)))

    def forward(self, pixels: Tensor) -> Tensor:
        pixels, levels = self.stem(pixels), []
        for block in self.down:
            pixels = block(pixels)
            levels.append(pixels)
        coarse: Tensor | None = None
        for side, level in zip(reversed(self.side), reversed(levels[self.finest :]), strict=True):
            fine = side(level)
            if coarse is not None:
                height, width = fine.shape[2:]
                # A convolution with stride 2 has the middle of its output i at 2 i, so what is beyond the last one is cut off.
                fine = fine + functional.interpolate(coarse, scale_factor=2.0)[:, :, :height, :width]
            coarse = fine
        features = self.smooth(coarse)
        return torch.cat([self.heat(features), self.distance(features)], dim=1)


def branch(channels: int, outputs: int, first: float) -> nn.Sequential:
    """Layers before an output that begins at `first`."""
    last = nn.Conv2d(channels, outputs, 1)
    nn.init.normal_(last.weight, std=0.01)
    assert last.bias is not None
    nn.init.constant_(last.bias, first)
    return nn.Sequential(nn.Conv2d(channels, channels, 3, 1, 1, bias=False), norm(channels), nn.ReLU(), last)


def norm(channels: int) -> nn.GroupNorm:
    groups = max(channels // _GROUP_CHANNELS, 1)
    return nn.GroupNorm(groups if channels % groups == 0 else 1, channels)


class OverColumn(nn.Module):
    """Applies a network to the image column of a batch; bytes become numbers from −1 to 1."""

    def __init__(self, column: str, network: nn.Module) -> None:
        super().__init__()
        self.column, self.network = column, network

    def forward(self, batch: Batch) -> Tensor:
        pixels = scale_pixels(batch[self.column]) * 2 - 1
        return self.network(pixels.contiguous(memory_format=torch.channels_last))
