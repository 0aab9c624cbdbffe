"""Weighs the terms of a text, and sums what each of them stands for; or counts the frequent ones."""

from collections.abc import Mapping
from math import log
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipelines.data.versions.schema import FREE, TensorColumn

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
