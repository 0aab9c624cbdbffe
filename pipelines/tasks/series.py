"""The task `series`: predicts a class or a number from a series of any length, with one or more channels."""

from math import log2
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipelines.config import TaskSettings
from pipelines.config.did_you_mean import name_list
from pipelines.config.task import SeriesTaskSettings as Settings
from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch, Data
from pipelines.tasks.supervised import Supervised

_LEVELS = 4
"""Numbers that tell a channel's level: mean, deviation, lowest and highest value."""
_KERNEL_SIZES = (7, 9, 11)


class SeriesTask(Supervised):
    settings: Settings

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        """Raises ConfigError if the features are not one column of the encoder `series`."""
        super().__init__(settings, data)
        shapes = [column.shape for column in data.features]
        if len(shapes) != 1 or len(shapes[0]) != 2 or shapes[0][0] < 2:
            columns_text = name_list([f"{column.name} {column.shape}" for column in data.features])
            raise ConfigError(f"task.kind is series, which takes one column of the encoder series, but got {columns_text}")
        self.series = data.features[0]

    def model(self) -> nn.Module:
        channels, steps = self.series.shape[0] - 1, self.series.shape[1]
        network: nn.Module
        if self.settings.network == "rocket":
            network = Rocket(channels, steps, self.settings.kernels)
        else:
            network = Convolutions(channels + 1, self.settings.filters)
        return OverSeries(self.series.name, channels, network, self.outputs, self.settings.dropout)


class OverSeries(nn.Module):
    """Applies a network to each series, scaled to mean 0 and deviation 1 over its own steps, and one linear layer to the network's features
    and to the levels that scaling has removed: mean, deviation, lowest and highest value of each channel, and the length."""

    def __init__(self, column: str, channels: int, network: nn.Module, outputs: int, dropout: float) -> None:
        super().__init__()
        self.column, self.network = column, network
        self.levels = nn.BatchNorm1d(_LEVELS * channels + 1, affine=False)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(cast(int, network.features) + _LEVELS * channels + 1, outputs)

    def forward(self, batch: Batch) -> Tensor:
        """Output of shape (rows, outputs)."""
        values, is_step = batch[self.column][:, :-1].float(), (batch[self.column][:, -1:] > 0).float()
        length = is_step.sum(2).clamp(min=1)
        mean = (values * is_step).sum(2) / length
        centred = (values - mean.unsqueeze(2)) * is_step
        deviation = (centred.square().sum(2) / length).sqrt()
        standard = centred / (deviation + 1e-6 * (1 + mean.abs())).unsqueeze(2)
        lowest = -_peaks(-values, is_step)
        levels = torch.cat([mean, deviation, lowest, _peaks(values, is_step), length.log()], 1)
        return self.output(self.dropout(torch.cat([self.network(standard, is_step), self.levels(levels)], 1)))


class Convolutions(nn.Module):
    """Convolutions of 7, 5 and 3 steps with batch norm, as Wang, Yan and Oates 2017 have them ("Time series classification from scratch
    with deep neural networks"); then each filter's mean and highest value over the steps."""

    def __init__(self, channels: int, filters: tuple[int, ...]) -> None:
        super().__init__()
        sizes = (7, 5, *[3] * len(filters))
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Conv1d(before, after, size, padding=size // 2, bias=False), nn.BatchNorm1d(after), nn.ReLU())
            for before, after, size in zip((channels, *filters), filters, sizes, strict=False)
        )
        self.features = 2 * filters[-1]

    def forward(self, standard: Tensor, is_step: Tensor) -> Tensor:
        hidden = torch.cat([standard, is_step], 1)
        for layer in self.layers:
            hidden = layer(hidden) * is_step  # so that padding stays 0
        return torch.cat([hidden.sum(2) / is_step.sum(2).clamp(min=1), hidden.amax(2)], 1)


class Rocket(nn.Module):
    """Random kernels, which are not trained, as in Dempster, Petitjean and Webb 2020 ("ROCKET"): of each, the share of steps above 0 and
    the highest value. Dilations are powers of two, for kernels of one size and dilation are one convolution."""

    def __init__(self, channels: int, steps: int, kernels: int) -> None:
        super().__init__()
        shapes = [
            (size, 2**power) for size in _KERNEL_SIZES for power in range(int(log2(max((steps - 1) / (size - 1), 1))) + 1)
        ]  # the longest reaches over all steps
        self._dilations: list[int] = []
        for number, (size, dilation) in enumerate(shapes):
            count = kernels // len(shapes) + (number < kernels % len(shapes))
            if count:
                weights = torch.randn(count, channels, size)
                chosen = torch.rand(count, channels, 1).argsort(1).argsort(1) < 2 ** (torch.rand(count, 1, 1) * log2(channels + 1))
                self.register_buffer(f"weights_{len(self._dilations)}", (weights - weights.mean(2, keepdim=True)) * chosen)
                self.register_buffer(f"biases_{len(self._dilations)}", 2 * torch.rand(count) - 1)
                self._dilations.append(dilation)
        self.features = 2 * kernels
        self.norm = nn.BatchNorm1d(self.features, affine=False)

    @torch.no_grad()
    def forward(self, standard: Tensor, is_step: Tensor) -> Tensor:
        features = []
        for number, dilation in enumerate(self._dilations):
            weights, biases = self.get_buffer(f"weights_{number}"), self.get_buffer(f"biases_{number}")
            padding = dilation * (weights.shape[2] // 2)
            output = functional.conv1d(standard, weights, biases, padding=padding, dilation=dilation).float()
            share = ((output > 0) * is_step).sum(2) / is_step.sum(2).clamp(min=1)
            features += [share, _peaks(output, is_step)]
        return self.norm(torch.cat(features, 1))


def _peaks(values: Tensor, is_step: Tensor) -> Tensor:
    """The highest value over the steps of each series, shape (rows, channels); 0 for a series without one."""
    return values.masked_fill(is_step == 0, -torch.inf).amax(2).clamp(min=torch.finfo(torch.float32).min)
