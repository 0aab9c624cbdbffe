"""The task `vision`: a convolutional network for one column of images, small or a ResNet.

ResNet-18 and ResNet-50 are those of He et al. 2016, with the stride in a bottleneck's 3x3 convolution ("v1.5"); ResNet-20 is their
small one.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from pipelines.config import TaskSettings
from pipelines.config.messages.words import name_list
from pipelines.config.tasks.task import VisionSettings as Settings
from pipelines.data.versions.schema import ROW_KEYS
from pipelines.errors import ConfigError
from pipelines.tasks.augmentation import Mixing, change_pictures, neighbours
from pipelines.tasks.base import Batch, Data
from pipelines.tasks.model_parallel import Link, chain_links, cut_stages
from pipelines.tasks.supervised import Supervised

SMALL_SIDE = 64
"""For images up to this size, a 3x3 convolution without stride replaces the initial 7x7 convolution and its pooling."""


class Residual(nn.Module):
    """A basic or bottleneck block: convolutions with a residual connection."""

    def __init__(self, channels: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        outputs = 4 * width if bottleneck else width
        if bottleneck:
            steps = [
                _conv_norm(channels, width, 1),
                nn.ReLU(),
                _conv_norm(width, width, 3, stride),
                nn.ReLU(),
                _conv_norm(width, outputs, 1),
            ]
        else:
            steps = [_conv_norm(channels, width, 3, stride), nn.ReLU(), _conv_norm(width, width, 3)]
        self.branch = nn.Sequential(*steps)
        self.shortcut = nn.Identity() if channels == outputs and stride == 1 else _conv_norm(channels, outputs, 1, stride)
        self.activation = nn.ReLU()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.activation(self.branch(inputs) + self.shortcut(inputs))


def resnet(
    depths: tuple[int, ...], bottleneck: bool, shape: Sequence[int], outputs: int, dropout: float, channels: int = 64
) -> nn.Sequential:
    """For images of shape (channels, height, width). `depths` are the blocks of each stage, `channels` those of the first."""
    small, first_width = max(shape[1:]) <= SMALL_SIDE, channels
    stem = [_conv_norm(shape[0], channels, 3)] if small else [_conv_norm(shape[0], channels, 7, 2), nn.MaxPool2d(3, 2, padding=1)]
    stages = []
    for stage, depth in enumerate(depths):
        width = first_width * 2**stage
        for block in range(depth):
            stages.append(Residual(channels, width, 2 if stage and not block else 1, bottleneck))
            channels = 4 * width if bottleneck else width
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(dropout), nn.Linear(channels, outputs)]
    network = nn.Sequential(stem[0], nn.ReLU(), *stem[1:], *stages, *head)
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return network


def _conv_norm(channels: int, filters: int, size: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, filters, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(filters))


class Vision(Supervised):
    settings: Settings

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        """Raises ConfigError if the features are not one image column, or if shifts or masks could cover all of it."""
        super().__init__(settings, data)
        shapes = [column.shape for column in data.features]
        if len(shapes) != 1 or len(shapes[0]) not in (2, 3):
            columns_text = name_list([f"{column.name} {column.shape}" for column in data.features])
            raise ConfigError(
                f"task.kind is vision, which takes one image column, (channels, height, width) per row, but got {columns_text}"
            )
        self.image = data.features[0]
        height, width = self.image.shape[-2:]
        if max(self.settings.shift_pixels, self.settings.masked_pixels) >= min(height, width):
            raise ConfigError(
                f"task.shift_pixels {self.settings.shift_pixels}, masked_pixels {self.settings.masked_pixels}: {self.image.name} has only "
                f"{width}x{height} pixels; each setting must be smaller"
            )
        self._mixing = Mixing(self.settings.mixup) if self.settings.mixup else None
        self.draws = bool(self.settings.shift_pixels or self.settings.flips or self.settings.masked_pixels or self._mixing)

    def model(self) -> nn.Module:
        shape = (1, *self.image.shape) if len(self.image.shape) == 2 else self.image.shape
        network = NETWORKS[self.settings.network](shape, self.outputs, self.settings.dropout)
        return OverImages(self.image.name, network, self.settings, self._mixing)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Of mixed pictures, a row's loss is that of its own label and that of its neighbour's, each times its share and its weight."""
        if self._mixing is None:
            return super().loss(model, batch)
        output, keys = model(batch).float(), batch[ROW_KEYS]
        shares, order = self._mixing.shares(keys), neighbours(keys)
        labels = {name: batch[name][order] for name in (self.data.target.name, *self.settings.passthrough)}
        losses, weights = self.row_losses(output, batch)
        other_losses, other_weights = self.row_losses(output, {**batch, **labels})
        if weights is None or other_weights is None:
            return (shares * losses + (1 - shares) * other_losses).sum(), losses.new_full((), len(losses))
        total = (shares * weights * losses + (1 - shares) * other_weights * other_losses).sum()
        return total, (shares * weights + (1 - shares) * other_weights).sum()

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        return [module for module in model.modules() if isinstance(module, Residual)]

    def stages(self, model: nn.Module, count: int) -> Sequence[nn.Module]:
        if not (isinstance(model, OverImages) and isinstance(model.network, nn.Sequential)):
            return ()
        return cut_stages(count, Link(lambda hidden, batch: model.pixels(batch)), chain_links(model.network))


class OverImages(nn.Module):
    """Applies a network to the image column of a batch, which is augmented in training. Bytes are scaled to numbers from 0 to 1 on the
    device of the network."""

    def __init__(self, column: str, network: nn.Module, settings: Settings, mixing: Mixing | None = None) -> None:
        super().__init__()
        self.column, self.settings, self._mixing = column, settings, mixing
        self.network = network
        for module in network.modules():
            # The layout of a kernel with one channel or one pixel is ambiguous: DDP warns unless it is that of the gradient.
            if isinstance(module, nn.Conv2d) and module.weight.is_contiguous(memory_format=torch.channels_last):
                module.weight.data = module.weight.data.to(memory_format=torch.channels_last)

    def forward(self, batch: Batch) -> Tensor:
        """Output of shape (rows, outputs)."""
        return self.network(self.pixels(batch))

    def pixels(self, batch: Batch) -> Tensor:
        """The input of the network."""
        images = batch[self.column]
        images = images if images.dim() == 4 else images.unsqueeze(1)
        if self.training and ROW_KEYS in batch:
            images = change_pictures(images, batch[ROW_KEYS], self.settings)
        # With channels last, a step of `small` with 64 images of three channels takes three quarters of the time on one CPU thread.
        # ExecuTorch 1.5.1 does not run `to(memory_format=…)` of images with one channel.
        pixels = images.contiguous(memory_format=torch.channels_last).to(torch.float32)
        pixels = pixels if images.is_floating_point() else pixels / 255
        if self._mixing is not None and self.training and ROW_KEYS in batch:
            pixels = self._mixing.mix(pixels, batch[ROW_KEYS])
        return pixels


def small(shape: Sequence[int], outputs: int, dropout: float, kernel: int = 3, hidden: int = 128) -> nn.Sequential:
    """Two convolutions with 2x2 max pooling, and one hidden layer, for images of shape (channels, height, width)."""
    channels, height, width = shape
    quarter = -(-height // 4) * -(-width // 4)
    return nn.Sequential(
        *_convolution(channels, 32, kernel),
        *_convolution(32, 64, kernel),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(64 * quarter, hidden),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(hidden, outputs),
    )


def _convolution(channels: int, filters: int, kernel: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(channels, filters, kernel, padding=kernel // 2), nn.MaxPool2d(2, ceil_mode=True), nn.ReLU()


NETWORKS: dict[str, Callable[[Sequence[int], int, float], nn.Sequential]] = {
    "small": small,
    # McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017: with images of 1x28x28 and
    # ten classes it has 1,663,370 parameters.
    "fedavg": partial(small, kernel=5, hidden=512),
    # Section 4.2, for 32x32: stages of 16, 32 and 64 channels. It has 272,474 parameters at three channels and 10 outputs; its shortcuts to
    # another size are convolutions.
    "resnet20": partial(resnet, (3, 3, 3), False, channels=16),
    # 11,689,512 and 25,557,032 parameters at 3 x 224 x 224 and 1,000 outputs.
    "resnet18": partial(resnet, (2, 2, 2, 2), False),
    "resnet50": partial(resnet, (3, 4, 6, 3), True),
}
"""By `task.network`: make one for images of a shape, with so many outputs and this dropout."""
