"""Embeddings of numbers: vectors that are functions of one number each (Gorishniy et al. 2022, "On embeddings for numerical features in
tabular deep learning"). A perceptron then bends at many places of a column, where it would need many units.

Columns are expected to be about standard normal, as the encoders `normal_quantile` and `standardize` give them.
"""

from math import pi
from statistics import NormalDist

import torch
from torch import Tensor, nn

from pipelines.config.tasks.tabular import NumberEmbedding as Settings


def number_embedding(settings: Settings, columns: int) -> nn.Module:
    """A module from numbers of shape (rows, `columns`) to vectors of shape (rows, `columns`, `settings.width`)."""
    if settings.kind == "piecewise":
        return PiecewiseLinear(columns, settings.bins, settings.width)
    return Periodic(columns, settings.frequencies, settings.scale, settings.width)


class PiecewiseLinear(nn.Module):
    """A piecewise linear function of each number: a straight line, and a linear layer over the share of each bin that is below the number.

    The layer starts at 0, so that training begins with straight lines."""

    edges: Tensor
    """Ascending, shape (bins − 1,): quantiles of the standard normal distribution. The first and the last bin have no outer end."""

    def __init__(self, columns: int, bins: int, width: int) -> None:
        super().__init__()
        edges = [NormalDist().inv_cdf(number / bins) for number in range(1, bins)]
        self.register_buffer("edges", torch.tensor(edges), persistent=False)
        self.slopes = nn.Parameter(torch.empty(columns, width).uniform_(-1, 1))
        self.starts = nn.Parameter(torch.empty(columns, width).uniform_(-1, 1))
        self.bins = nn.Parameter(torch.zeros(columns, bins, width))

    def forward(self, numbers: Tensor) -> Tensor:
        lines = numbers.unsqueeze(-1) * self.slopes + self.starts
        return lines + torch.einsum("rcb,cbw->rcw", self.shares(numbers), self.bins)

    def shares(self, numbers: Tensor) -> Tensor:
        """Shape (rows, columns, bins): 0 where a bin is above the number, 1 where it is below, between where it contains the number.

        The first bin is below 0 for numbers left of its end, and the last above 1 right of its unit: both are lines without an end."""
        values = numbers.unsqueeze(-1)
        first, last = values - self.edges[:1], values - self.edges[-1:]
        inner = (values - self.edges[:-1]) / (self.edges[1:] - self.edges[:-1])
        return torch.cat([first.clamp(max=0), inner.clamp(0, 1), last.clamp(min=0)], dim=-1)


class Periodic(nn.Module):
    """Sine and cosine of each number at frequencies that are trained, a linear layer for each column, and a ReLU."""

    def __init__(self, columns: int, frequencies: int, scale: float, width: int) -> None:
        """`scale` is the standard deviation of the first frequencies, in cycles per unit of the number."""
        super().__init__()
        self.frequencies = nn.Parameter(torch.randn(columns, frequencies).clamp(-3, 3) * scale)
        bound = (2 * frequencies) ** -0.5
        self.weights = nn.Parameter(torch.empty(columns, 2 * frequencies, width).uniform_(-bound, bound))
        self.biases = nn.Parameter(torch.empty(columns, width).uniform_(-bound, bound))

    def forward(self, numbers: Tensor) -> Tensor:
        angles = 2 * pi * numbers.unsqueeze(-1) * self.frequencies
        waves = torch.cat([angles.cos(), angles.sin()], dim=-1)
        return (torch.einsum("rcf,cfw->rcw", waves, self.weights) + self.biases).relu()
