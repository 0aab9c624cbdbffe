"""The task `tabular`: a multi-layer perceptron over numbers and indices, beside a linear model of the terms of texts."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil, pi, prod
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor, nn

from pipelines.config import TaskSettings
from pipelines.config.tasks.task import NumberEmbedding
from pipelines.config.tasks.task import TabularSettings as Settings
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch, Data
from pipelines.tasks.model_parallel import LayerPlan, Link, chain_links, cut_stages
from pipelines.tasks.supervised import Supervised
from pipelines.tasks.targets.base import is_binary
from pipelines.tasks.text import BagOfTerms

DIRECT = NumberEmbedding()
"""Numbers as they are."""


def number_embedding(settings: NumberEmbedding, columns: int) -> nn.Module:
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


class Tabular(Supervised):
    settings: Settings
    takes_terms = True

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        """Raises ConfigError if all features are terms."""
        super().__init__(settings, data)
        if all(column.counted for column in data.features):
            raise ConfigError(
                "task.kind is tabular, whose layers take numbers and categories, but all features are of the encoder terms; set task.kind "
                "to text, or add a feature of another encoder"
            )

    def model(self) -> nn.Module:
        terms = {column.name: self.data.encoders[column.name].state for column in self.data.features if column.counted}
        return Perceptron(self.data.features, self.outputs, self.settings, self.target.average, terms)

    def stages(self, model: nn.Module, count: int) -> Sequence[nn.Module]:
        if not isinstance(model, Perceptron):
            return ()
        embeddings = (model.embeddings,) if model.number_embedding is None else (model.embeddings, model.number_embedding)
        first = Link(lambda hidden, batch: model.inputs(batch), (*embeddings, model.deep))
        return cut_stages(count, first, chain_links(model.layers), Link(model.finish, (model.wide, model.average)))

    def parallel_plan(self, model: nn.Module) -> Mapping[str, LayerPlan]:
        """Of two hidden layers, workers divide the outputs of the first, which are the inputs of the second. With batch norm, dropout or
        members, the outputs of each are gathered. The last layer is whole unless it is the second of two."""
        if not isinstance(model, Perceptron):
            return {}
        linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
        if self.settings.members > 1:
            return {name: LayerPlan("gathered columns") for name in linear}
        if self.settings.batch_norm or self.settings.dropout:
            return {name: LayerPlan("gathered columns") for name in linear[:-1]}
        paired = linear[: len(linear) // 2 * 2]
        return {name: LayerPlan("rows" if number % 2 else "columns") for number, name in enumerate(paired)}


class FeatureVector(nn.Module):
    """Embeds columns of indices, and of numbers if told to, and concatenates all columns but those of terms."""

    def __init__(self, features: Sequence[TensorColumn], embedding: int | None = None, numbers: NumberEmbedding = DIRECT) -> None:
        """`embedding` is the width of each embedding of an index; by default, it grows with the number of values."""
        super().__init__()
        features = [column for column in features if not column.counted]
        indexed = [column for column in features if _is_index(column)]
        self.indices = tuple(column.name for column in indexed)
        self.embedded_numbers = tuple(column.name for column in features if _is_embedded_number(column, numbers))
        self.numbers = tuple(column.name for column in features if not _is_index(column) and column.name not in self.embedded_numbers)
        # A list, because a ModuleDict refuses columns with the name of one of its methods, such as `type`.
        self.embeddings = nn.ModuleList()
        for column in indexed:
            vectors = nn.Embedding(column.cardinality or 0, _width(column, embedding))
            # torch's standard deviation of 1 outweighs the other inputs. On adult, test AUC is 0.928 with 0.1, 0.924 with 1.
            nn.init.normal_(vectors.weight, std=0.1)
            self.embeddings.append(vectors)
        self.number_embedding = number_embedding(numbers, len(self.embedded_numbers)) if self.embedded_numbers else None

    def forward(self, batch: Batch) -> Tensor:
        """The columns side by side, shape (rows, width)."""
        vectors = [embedding(batch[name]) for name, embedding in zip(self.indices, self.embeddings, strict=True)]
        if self.number_embedding is not None:
            vectors.append(self.number_embedding(torch.stack([batch[name].float() for name in self.embedded_numbers], dim=1)))
        numbers = [batch[name].float().unsqueeze(-1) for name in self.numbers]
        return torch.cat([values.flatten(1) for values in (*vectors, *numbers)], dim=1)


class Perceptron(FeatureVector):
    """Applies fully connected layers to the columns side by side, and adds a linear model of terms to their output (Cheng et al. 2016,
    "Wide & deep learning for recommender systems"). With `terms_width`, the terms are also embedded, for the layers."""

    def __init__(
        self,
        features: tuple[TensorColumn, ...],
        outputs: int,
        settings: Settings,
        average: Callable[[Tensor], Tensor],
        terms: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """`average` makes one output of the members' outputs, if there are several members; `terms` are the states of the encoders of
        columns of terms."""
        super().__init__(features, settings.embedding, settings.number_embedding)
        counted = [column for column in features if column.counted]
        states = terms or {}
        self.wide = nn.ModuleList([BagOfTerms(column, states[column.name], outputs) for column in counted])
        deep = counted if settings.terms_width else []
        self.deep = nn.ModuleList([BagOfTerms(column, states[column.name], settings.terms_width) for column in deep])
        width = vector_width(features, settings.embedding, settings.number_embedding) + len(deep) * settings.terms_width
        members, layers = settings.members, list[nn.Module]()
        for hidden in settings.hidden:
            linear = nn.Linear(width, hidden) if members == 1 else SharedLinear(members, width, hidden, is_first=not layers)
            layers += [linear, *([nn.BatchNorm1d(hidden)] if settings.batch_norm else []), nn.ReLU()]
            layers += [nn.Dropout(settings.dropout)] if settings.dropout else []
            width = hidden
        last = nn.Linear(width, outputs) if members == 1 else Heads(members, width, outputs)
        self.layers = nn.Sequential(*layers, last)
        self.average = nn.Identity() if members == 1 else Average(average)

    def forward(self, batch: Batch) -> Tensor:
        """Output of shape (rows, outputs); in training with several members, (rows, members, outputs)."""
        return self.finish(self.layers(self.inputs(batch)), batch)

    def inputs(self, batch: Batch) -> Tensor:
        """The columns side by side, and the sums of the vectors of terms, shape (rows, width)."""
        columns = super().forward(batch)
        return torch.cat([columns, *(bag(batch) for bag in self.deep)], dim=1) if self.deep else columns

    def finish(self, output: Tensor, batch: Batch) -> Tensor:
        """Add the linear model of terms to the output of the layers, that of each member, and average the members'."""
        for bag in self.wide:
            values = bag(batch)
            output = output + (values.unsqueeze(1) if output.dim() == 3 else values)
        averaged: Tensor = self.average(output)
        return averaged


def vector_width(features: Sequence[TensorColumn], embedding: int | None = None, numbers: NumberEmbedding = DIRECT) -> int:
    return sum(
        numbers.width if _is_embedded_number(column, numbers) else _width(column, embedding) * prod(column.shape)
        for column in features
        if not column.counted
    )


def _is_index(column: TensorColumn) -> bool:
    return column.cardinality is not None and not is_binary(column)


def _is_embedded_number(column: TensorColumn, numbers: NumberEmbedding) -> bool:
    """Whether a number has a vector of its own: neither an array nor one of two values."""
    return numbers.kind != "none" and not _is_index(column) and not is_binary(column) and not column.shape


def _width(column: TensorColumn, embedding: int | None) -> int:
    """Number of inputs for one value of the column: 1 for a number, the width of the embedding for an index.

    The default width is four times the fourth root of the number of values: 5 for 2, 10 for 32, 23 for 1,000, 127 for a million.
    """
    if column.cardinality is None or not _is_index(column):
        return 1
    return embedding or ceil(4 * column.cardinality**0.25)
