"""Layers of several networks that share most of their weights: BatchEnsemble (Wen et al. 2020), as TabM uses it for tables
(Gorishniy et al. 2024, "TabM: Advancing tabular deep learning with parameter-efficient ensembling").

Values have shape (rows, members, width) between them.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn


class SharedLinear(nn.Module):
    """A linear layer whose weight all members share; each scales its inputs and outputs with vectors of its own, and has a bias."""

    def __init__(self, members: int, inputs: int, outputs: int, is_first: bool) -> None:
        """`is_first`: the input may be the same for all members, of shape (rows, width), whose signs they change at random, so that
        they differ from the start. Other layers start with scales of 1."""
        super().__init__()
        self.shared = nn.Linear(inputs, outputs, bias=False)
        signs = 2.0 * torch.randint(2, (members, inputs)) - 1
        self.inputs = nn.Parameter(signs if is_first else torch.ones(members, inputs))
        self.outputs = nn.Parameter(torch.ones(members, outputs))
        self.biases = nn.Parameter(torch.empty(outputs).uniform_(-(inputs**-0.5), inputs**-0.5).repeat(members, 1))

    def forward(self, values: Tensor) -> Tensor:
        return self.shared(_member_values(values) * self.inputs) * self.outputs + self.biases


class Heads(nn.Module):
    """The last layer, which members do not share: the outputs of all of them, shape (rows, members, outputs)."""

    def __init__(self, members: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = inputs**-0.5
        self.weights = nn.Parameter(torch.empty(members, inputs, outputs).uniform_(-bound, bound))
        self.biases = nn.Parameter(torch.empty(members, outputs).uniform_(-bound, bound))

    def forward(self, values: Tensor) -> Tensor:
        return torch.einsum("rmi,mio->rmo", _member_values(values).expand(-1, len(self.weights), -1), self.weights) + self.biases


class Average(nn.Module):
    """Leaves the outputs of members as they are in training, and makes their average else, shape (rows, outputs)."""

    def __init__(self, average: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._average = average

    def forward(self, outputs: Tensor) -> Tensor:
        return outputs if self.training else self._average(outputs)


def _member_values(values: Tensor) -> Tensor:
    return values.unsqueeze(1) if values.dim() == 2 else values
