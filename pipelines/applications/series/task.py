"""The task `series`: predicts a class or a number from a series of any length, with one or more channels."""

from math import log2
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipelines.applications.series.settings import SeriesTaskSettings as Settings
from pipelines.config import TaskSettings
from pipelines.config.messages.words import name_list
from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch, Data
from pipelines.tasks.supervised import Supervised

_LEVELS = 4
"""Numbers that tell a channel's level: mean, deviation, lowest and highest value."""
_KERNEL_SIZES = (7, 9, 11)
_NUMBERS_AT_ONCE = 2**24
"""Steps times kernels, or filters, of the rows that the served model computes at once: 64 MB for each tensor of them."""


class SeriesTask(Supervised):
    settings: Settings

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        """Raises ConfigError if the features are not one column of the encoder `series`."""
        super().__init__(settings, data)
        fitted = [data.encoders.get(column.name) for column in data.features]
        encoders = [str(encoder.feature.get("encoder")) if encoder else "series" for encoder in fitted]
        shapes = [column.shape for column in data.features]
        if encoders != ["series"] or len(shapes[0]) != 2 or shapes[0][0] < 2 or data.features[0].dtype != "float32":
            columns_text = name_list([f"{column.name} {column.shape}" for column in data.features])
            raise ConfigError(f"task.kind is series, which takes one column of the encoder series, but got {columns_text}")
        self.series = data.features[0]

    @property
    def rows_at_once(self) -> int:
        widest = self.settings.kernels if self.settings.network == "rocket" else max(self.settings.filters)
        return max(1, _NUMBERS_AT_ONCE // (self.series.shape[1] * widest))

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
        # From the first step on, which leaves a constant series exactly 0, and digits for small changes at a high level.
        changes = (values - values[:, :, :1]) * is_step
        mean_change = changes.sum(2) / length
        centred = (changes - mean_change.unsqueeze(2)) * is_step
        # Divided by its greatest change first, so that squares of small and large numbers fit into float32; limits are for constants.
        furthest = centred.abs().amax(2, keepdim=True).clamp(min=1e-30)
        relative_deviation = ((centred / furthest).square().sum(2) / length).sqrt()
        standard = centred / furthest / relative_deviation.clamp(min=1e-6).unsqueeze(2)
        mean, deviation = values[:, :, 0] + mean_change, relative_deviation * furthest.squeeze(2)
        levels = torch.cat([mean, deviation, -_peaks(-values, is_step), _peaks(values, is_step), length.log()], 1)
        return self.output(self.dropout(torch.cat([self.network(standard, is_step), limit_deviations(self.levels(levels))], 1)))


def limit_deviations(features: Tensor) -> Tensor:
    """Features after batch norm, at most 10 deviations from their mean: one that hardly varied in training may be anywhere later."""
    return features.clamp(-10, 10)


class NormOverSteps(nn.Module):
    """Batch norm over the steps of series, without their padding."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, hidden: Tensor, is_step: Tensor) -> Tensor:
        """`hidden` has the shape (rows, channels, steps); what lies beyond a series becomes 0."""
        if not self.training:
            return self.norm(hidden) * is_step
        steps = is_step.squeeze(1) > 0
        by_step = hidden.transpose(1, 2)
        return torch.zeros_like(by_step).masked_scatter(steps.unsqueeze(2), self.norm(by_step[steps])).transpose(1, 2)


class Convolutions(nn.Module):
    """Convolutions of 7, 5 and 3 steps with batch norm, as Wang, Yan and Oates 2017 have them ("Time series classification from scratch
    with deep neural networks"); then each filter's mean and highest value over the steps."""

    def __init__(self, channels: int, filters: tuple[int, ...]) -> None:
        super().__init__()
        sizes = (7, 5, *[3] * len(filters))
        self.layers = nn.ModuleList(
            nn.Conv1d(before, after, size, padding=size // 2, bias=False)
            for before, after, size in zip((channels, *filters), filters, sizes, strict=False)
        )
        self.norms = nn.ModuleList(NormOverSteps(count) for count in filters)
        self.features = 2 * filters[-1]

    def forward(self, standard: Tensor, is_step: Tensor) -> Tensor:
        hidden = torch.cat([standard, is_step], 1)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            hidden = norm(layer(hidden), is_step).relu()
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
        return limit_deviations(self.norm(torch.cat(features, 1)))


def _peaks(values: Tensor, is_step: Tensor) -> Tensor:
    """The highest value over the steps of each series, shape (rows, channels); 0 for a series without one."""
    return torch.where(is_step.amax(2) > 0, values.masked_fill(is_step == 0, -torch.inf).amax(2), 0.0)
