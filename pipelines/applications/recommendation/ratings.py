"""The task `recommendation`: predicts how a user rates an item, from features of both."""

from collections.abc import Iterable
from itertools import combinations, pairwise
from math import prod

import torch
from torch import Tensor, nn

from pipelines.applications.recommendation.settings import RecommendationSettings as Settings
from pipelines.config import TaskSettings
from pipelines.config.messages.words import name_list
from pipelines.data.versions.schema import FREE, TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch, Data
from pipelines.tasks.supervised import Supervised


class Recommendation(Supervised):
    settings: Settings

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        """Raises ConfigError if the target is not a single number, or if a feature for `factors` is not assigned to user or item."""
        super().__init__(settings, data)
        if self.outputs != 1:
            raise ConfigError(
                f"task.kind is recommendation, which predicts one number, but {data.target.name} needs {self.outputs} outputs; "
                "use task.kind tabular, or a numeric target"
            )
        if self.settings.network == "factors":
            sides = sorted([*self.settings.user, *self.settings.item])
            features = sorted(column.name for column in data.features)
            if sides != features or not self.settings.user or not self.settings.item:
                raise ConfigError(
                    f"task.user and task.item are {list(self.settings.user)} and {list(self.settings.item)}; "
                    f"together they must name each feature once: {name_list(features)}"
                )

    def model(self) -> nn.Module:
        return (Factors if self.settings.network == "factors" else Interactions)(self.data.features, self.settings)


class Vectors(nn.Module):
    """A vector for each feature: an embedding of an index, the mean embedding of a sequence, or a linear map of numbers."""

    def __init__(self, features: Iterable[TensorColumn], width: int) -> None:
        super().__init__()
        self.features = tuple(features)
        # A list, because a ModuleDict refuses columns with the name of one of its methods, such as `type`.
        self.maps = nn.ModuleList()
        for column in self.features:
            if column.cardinality is None:
                self.maps.append(nn.Linear(prod(column.shape), width, bias=False))
            else:
                embedding = nn.Embedding(column.cardinality, width)
                nn.init.normal_(embedding.weight, std=0.05)
                self.maps.append(embedding)

    def forward(self, batch: Batch) -> list[Tensor]:
        """One tensor of shape (rows, width) for each feature."""
        vectors = []
        for column, layer in zip(self.features, self.maps, strict=True):
            values = batch[column.name]
            if column.cardinality is None:
                vectors.append(layer(values.float().unsqueeze(-1).flatten(1)))
            elif not column.shape:
                vectors.append(layer(values.int()))
            else:
                values = values.flatten(1).int()
                filled = (values != FREE).unsqueeze(-1)
                vectors.append((layer(values) * filled).sum(1) / filled.sum(1).clamp(min=1))
        return vectors


class Factors(nn.Module):
    """Matrix factorization: biases, and the product of the vectors of user and item (Koren et al. 2009). Each vector is the sum of
    the vectors of its features (Rendle 2010)."""

    def __init__(self, features: tuple[TensorColumn, ...], settings: Settings) -> None:
        super().__init__()
        # The last entry of a vector is the bias of its feature.
        self.user, self.item = (
            Vectors((column for column in features if column.name in side), settings.width + 1) for side in (settings.user, settings.item)
        )
        self.bias = nn.Parameter(torch.zeros(1))
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, batch: Batch) -> Tensor:
        """Output of shape (rows, 1)."""
        user, item = (torch.stack(side(batch)).sum(0) for side in (self.user, self.item))
        product = (self.dropout(user[:, :-1]) * self.dropout(item[:, :-1])).sum(1)
        return (self.bias + user[:, -1] + item[:, -1] + product).unsqueeze(1)


class Interactions(nn.Module):
    """DLRM (Naumov et al. 2019): a perceptron turns the numbers into a vector; another one takes all vectors and the products of all
    pairs of them."""

    def __init__(self, features: tuple[TensorColumn, ...], settings: Settings) -> None:
        super().__init__()
        self.numbers = tuple(column.name for column in features if column.cardinality is None)
        numbers = sum(prod(column.shape) for column in features if column.cardinality is None)
        self.vectors = Vectors((column for column in features if column.cardinality is not None), settings.width)
        self.bottom = _perceptron([numbers, *settings.hidden[:1], settings.width], settings.dropout) if numbers else None
        count = len(self.vectors.features) + bool(numbers)
        self.pairs = tuple(combinations(range(count), 2))
        width = len(self.pairs) + count * settings.width
        self.top = nn.Sequential(_perceptron([width, *settings.hidden], settings.dropout), nn.Linear([width, *settings.hidden][-1], 1))

    def forward(self, batch: Batch) -> Tensor:
        """Output of shape (rows, 1)."""
        vectors = self.vectors(batch)
        if self.bottom is not None:
            vectors.append(self.bottom(torch.cat([batch[name].float().unsqueeze(-1).flatten(1) for name in self.numbers], dim=1)))
        products = [(vectors[first] * vectors[second]).sum(1, keepdim=True) for first, second in self.pairs]
        return self.top(torch.cat([*products, *vectors], dim=1))


def _perceptron(widths: list[int], dropout: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers)
