"""ResNet-18 and ResNet-50 (He et al. 2016), with the stride in a bottleneck's 3x3 convolution ("v1.5"), and their small ResNet-20."""

from collections.abc import Sequence

from torch import Tensor, nn

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


def resnet20(shape: Sequence[int], outputs: int, dropout: float) -> nn.Sequential:
    """For images of shape (channels, height, width), as in section 4.2 for 32x32: three stages of 16, 32 and 64 channels. It has 272,474
    parameters at three channels and 10 outputs; its shortcuts to another size are convolutions."""
    return _resnet((3, 3, 3), False, shape, outputs, dropout, channels=16)


def resnet18(shape: Sequence[int], outputs: int, dropout: float) -> nn.Sequential:
    """For images of shape (channels, height, width). It has 11,689,512 parameters at 3 x 224 x 224 and 1,000 outputs."""
    return _resnet((2, 2, 2, 2), False, shape, outputs, dropout)


def resnet50(shape: Sequence[int], outputs: int, dropout: float) -> nn.Sequential:
    """For images of shape (channels, height, width). It has 25,557,032 parameters at 3 x 224 x 224 and 1,000 outputs."""
    return _resnet((3, 4, 6, 3), True, shape, outputs, dropout)


def _resnet(
    depths: tuple[int, ...], bottleneck: bool, shape: Sequence[int], outputs: int, dropout: float, channels: int = 64
) -> nn.Sequential:
    """`channels` are those of the first stage."""
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
    """A convolution without bias, followed by batch norm."""
    return nn.Sequential(nn.Conv2d(channels, filters, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(filters))
