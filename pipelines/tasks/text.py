"""The task `text`: over the words of a text, a convolutional network (Kim 2014); over its terms, a linear model of their weights; over
both, the sum of the two. Bags of terms serve other networks too.
"""

from collections.abc import Mapping, Sequence
from math import log
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipelines.config import TaskSettings
from pipelines.config.messages.words import name_list
from pipelines.config.tasks.task import TextSettings as Settings
from pipelines.data.versions.schema import FREE, TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch, Data
from pipelines.tasks.supervised import Supervised

_LEAST_NORM = 1e-12
_NORM = 10.0
"""The L2 norm of a text's weights. With 10, Adam's usual rate of 1e-3 suits the terms as it suits other parts of a network."""


def frequent_counts(column: Tensor, terms: int) -> Tensor:
    """How often each text has each of the first `terms`, those of most texts: float32 of shape (rows, terms). The column has the shape
    (rows, length, 2)."""
    numbers, counts = column.unbind(2)
    places = torch.where(numbers <= terms, numbers, FREE).long()
    table = torch.zeros(column.shape[0], FREE + 1 + terms, device=column.device)
    return table.scatter_add(1, places, counts.float())[:, FREE + 1 :]


class BagOfTerms(nn.Module):
    """Adds a vector for each term of a text, times its weight: (1 + ln count) · idf, scaled to one L2 norm for all texts.

    The inverse document frequency is smoothed, idf = ln((1 + texts) / (1 + texts with the term)) + 1 (Salton and Buckley 1988; these
    are scikit-learn's formulas with `sublinear_tf`). The vectors begin at 0.
    """

    inverse_frequency: Tensor

    def __init__(self, column: TensorColumn, state: Mapping[str, Any], width: int) -> None:
        """`state` is that of the column's encoder."""
        super().__init__()
        self.column = column.name
        self.vectors = nn.Embedding(column.cardinality or 0, width, padding_idx=FREE)
        nn.init.zeros_(self.vectors.weight)
        inverse = [log((1 + state["texts"]) / (1 + texts)) + 1 for texts in state["documents"]]
        self.register_buffer("inverse_frequency", torch.tensor([0.0, *inverse]))

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Sums of shape (rows, width)."""
        terms, counts = batch[self.column].unbind(2)
        return torch.bmm(self.weights(terms, counts).unsqueeze(1), self.vectors(terms)).squeeze(1)

    def weights(self, terms: Tensor, counts: Tensor) -> Tensor:
        """Weight of each term, shape (rows, length); 0 in free places."""
        # `embedding`, since ONNX has no indexing by int32.
        inverse = functional.embedding(terms, self.inverse_frequency.unsqueeze(1)).squeeze(2)
        weights = (1 + counts.clamp(min=1).float().log()) * inverse
        norms = weights.square().sum(1, keepdim=True).sqrt()
        return weights * (_NORM / norms.clamp(min=_LEAST_NORM))


class Text(Supervised):
    settings: Settings
    takes_terms = True

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        """Raises ConfigError if the features are neither one sequence nor terms, or if the sequence is shorter than the widest filter."""
        super().__init__(settings, data)
        self.terms = tuple(column for column in data.features if column.counted)
        sequences = [column for column in data.features if not column.counted]
        fits = all(len(column.shape) == 1 and column.cardinality is not None for column in sequences)
        if not fits or len(sequences) > 1 or not data.features:
            columns_text = name_list([f"{column.name} {column.shape}" for column in data.features])
            raise ConfigError(
                "task.kind is text, which takes one column of words from the encoder sequence, columns of the encoder terms, or both, "
                f"but got {columns_text}"
            )
        self.words = sequences[0] if sequences else None
        if self.words and max(self.settings.widths) > self.words.shape[0]:
            raise ConfigError(
                f"task.widths is {list(self.settings.widths)}, but {self.words.name} has only {self.words.shape[0]} words; "
                "reduce them, or raise the length of the column"
            )

    def model(self) -> nn.Module:
        words = WordWindows(self.words, self.outputs, self.settings) if self.words else Bias(self.outputs)
        bags = [BagOfTerms(column, self.data.encoders[column.name].state, self.outputs) for column in self.terms]
        return WithTerms(words, bags) if bags else words


class WithTerms(nn.Module):
    """Adds bags of terms to the output of a network over the words, or to a bias."""

    def __init__(self, words: nn.Module, bags: Sequence[BagOfTerms]) -> None:
        super().__init__()
        self.words = words
        self.bags = nn.ModuleList(bags)

    def forward(self, batch: Batch) -> Tensor:
        """Output of shape (rows, outputs)."""
        output: Tensor = self.words(batch)
        for bag in self.bags:
            output = output + bag(batch)
        return output


class Bias(nn.Module):
    """One output for all rows."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.zeros(outputs))

    def forward(self, batch: Batch) -> Tensor:
        """Output of shape (outputs,)."""
        return self.values


class WordWindows(nn.Module):
    """Embeds words, applies convolutions of several widths with max pooling over time, and one linear layer."""

    def __init__(self, words: TensorColumn, outputs: int, settings: Settings) -> None:
        super().__init__()
        self.column = words.name
        self.embedding = nn.Embedding(words.cardinality or 0, settings.embedding, padding_idx=FREE)
        with torch.no_grad():
            self.embedding.weight.uniform_(-0.25, 0.25)[0] = 0
        self.filters = nn.ModuleList([nn.Conv1d(settings.embedding, settings.filters, width) for width in settings.widths])
        self.dropout = nn.Dropout(settings.dropout)
        self.output = nn.Linear(settings.filters * len(settings.widths), outputs)

    def forward(self, batch: Batch) -> Tensor:
        """Output of shape (rows, outputs)."""
        embedded = self.embedding(batch[self.column]).transpose(1, 2)
        pooled = [convolution(embedded).relu().amax(2) for convolution in self.filters]
        return self.output(self.dropout(torch.cat(pooled, dim=1)))
