"""The task `tabular`: a multi-layer perceptron over numbers and indices."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil, prod

import torch
from torch import Tensor, nn

from pipelines.config.tasks.tabular import NumberEmbedding
from pipelines.config.tasks.tabular import TabularSettings as Settings
from pipelines.data.versions.schema import TensorColumn
from pipelines.tasks.base import Batch
from pipelines.tasks.stages import Link, chain_links, cut_stages
from pipelines.tasks.supervised import Supervised
from pipelines.tasks.tables.ensemble import Heads, SharedLinear
from pipelines.tasks.tables.number_embedding import number_embedding
from pipelines.tasks.targets.base import is_binary
from pipelines.tasks.tensor_parallel_plan import LayerPlan

DIRECT = NumberEmbedding()
"""Numbers as they are."""


class Tabular(Supervised):
    settings: Settings

    def model(self) -> nn.Module:
        return Perceptron(self.data.features, self.outputs, self.settings, self.target.average)

    def stages(self, model: nn.Module, count: int) -> Sequence[nn.Module]:
        if not isinstance(model, Perceptron):
            return ()
        return cut_stages(count, Link(lambda hidden, batch: model.inputs(batch), model.input_modules), chain_links(model.layers))

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
    """Embeds columns of indices, and of numbers if told to, and concatenates all columns."""

    def __init__(self, features: Sequence[TensorColumn], embedding: int | None = None, numbers: NumberEmbedding = DIRECT) -> None:
        """`embedding` is the width of each embedding of an index; by default, it grows with the number of values."""
        super().__init__()
        indexed = [column for column in features if _is_index(column)]
        self.indices = tuple(column.name for column in indexed)
        self.embedded_numbers = tuple(column.name for column in features if _is_embedded_number(column, numbers))
        self.numbers = tuple(column.name for column in features if not _is_index(column) and column.name not in self.embedded_numbers)
        # A list, because a ModuleDict refuses columns with the name of one of its methods, such as `type`.
        self.embeddings = nn.ModuleList([_embedding(column, embedding) for column in indexed])
        self.number_embedding = number_embedding(numbers, len(self.embedded_numbers)) if self.embedded_numbers else None

    def forward(self, batch: Batch) -> Tensor:
        """The columns side by side, shape (rows, width)."""
        vectors = [embedding(batch[name]) for name, embedding in zip(self.indices, self.embeddings, strict=True)]
        if self.number_embedding is not None:
            vectors.append(self.number_embedding(torch.stack([batch[name].float() for name in self.embedded_numbers], dim=1)))
        numbers = [batch[name].float().unsqueeze(-1) for name in self.numbers]
        return torch.cat([values.flatten(1) for values in (*vectors, *numbers)], dim=1)


class Perceptron(FeatureVector):
    """Applies fully connected layers to the columns side by side."""

    def __init__(self, features: tuple[TensorColumn, ...], outputs: int, settings: Settings, average: Callable[[Tensor], Tensor]) -> None:
        """`average` makes one output of the members' outputs, if there are several members."""
        super().__init__(features, settings.embedding, settings.number_embedding)
        width = vector_width(features, settings.embedding, settings.number_embedding)
        members, layers = settings.members, list[nn.Module]()
        for hidden in settings.hidden:
            linear = nn.Linear(width, hidden) if members == 1 else SharedLinear(members, width, hidden, is_first=not layers)
            layers += [linear, *([nn.BatchNorm1d(hidden)] if settings.batch_norm else []), nn.ReLU()]
            layers += [nn.Dropout(settings.dropout)] if settings.dropout else []
            width = hidden
        last = nn.Linear(width, outputs) if members == 1 else Heads(members, width, outputs, average)
        self.layers = nn.Sequential(*layers, last)

    def forward(self, batch: Batch) -> Tensor:
        """Output of shape (rows, outputs); in training with several members, (rows, members, outputs)."""
        return self.layers(self.inputs(batch))

    def inputs(self, batch: Batch) -> Tensor:
        """The columns side by side, shape (rows, width)."""
        return super().forward(batch)

    @property
    def input_modules(self) -> tuple[nn.Module, ...]:
        """Modules that `inputs` applies."""
        return (self.embeddings,) if self.number_embedding is None else (self.embeddings, self.number_embedding)


def vector_width(features: Sequence[TensorColumn], embedding: int | None = None, numbers: NumberEmbedding = DIRECT) -> int:
    """Width of a `FeatureVector`."""
    return sum(
        numbers.width if _is_embedded_number(column, numbers) else _width(column, embedding) * prod(column.shape) for column in features
    )


def _embedding(column: TensorColumn, width: int | None) -> nn.Embedding:
    """A standard deviation of 0.1: torch's default of 1 outweighs the other inputs. On adult, test AUC is 0.928 with 0.1, 0.924 with 1."""
    embedding = nn.Embedding(column.cardinality or 0, _width(column, width))
    nn.init.normal_(embedding.weight, std=0.1)
    return embedding


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
