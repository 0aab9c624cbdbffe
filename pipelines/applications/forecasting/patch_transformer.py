"""A transformer over patches of a series: Nie et al. 2023, "A time series is worth 64 words: long-term forecasting with transformers".

Each series is forecast by itself, and all by the same weights. Layer norm takes the place of the paper's batch norm: the forecast of a row
does not depend on the rows beside it.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipelines.tasks.data import Batch


class PatchTransformer(nn.Module):
    """A token is a patch of a history, which overlaps the next by half. All tokens attend to each other, and a linear map of all of them is
    the forecast."""

    def __init__(self, column: str, steps: int, horizon: int, patch: int, layers: int, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.column, self.patch, self.stride = column, patch, patch // 2
        tokens = (steps - patch) // self.stride + 2
        self.embedding = nn.Linear(patch, width)
        self.places = nn.Parameter(0.02 * torch.randn(tokens, width))
        self.blocks = nn.Sequential(*[PatchBlock(width, heads, dropout) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.future = nn.Linear(tokens * width, horizon)

    def forward(self, batch: Batch) -> Tensor:
        """Forecasts of shape (rows, horizon, series)."""
        history = batch[self.column].float().transpose(1, 2)
        # The last value is repeated, so that the last patch ends with the history or after it.
        patches = functional.pad(history, (0, self.stride), mode="replicate").unfold(2, self.patch, self.stride)
        tokens = self.dropout(self.embedding(patches) + self.places).flatten(0, 1)
        hidden = self.norm(self.blocks(tokens)).flatten(1)
        return self.future(self.dropout(hidden)).unflatten(0, (-1, history.shape[1])).transpose(1, 2)


class PatchBlock(nn.Module):
    """Self-attention and two linear layers, each with a layer norm before it and added to its input."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.layers_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.outputs = nn.Linear(width, width)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens of shape (series, tokens, width)."""
        queries, keys, values = self.qkv(self.attention_norm(tokens)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(queries, keys, values).transpose(1, 2).flatten(2)
        tokens = tokens + self.dropout(self.outputs(attended))
        return tokens + self.dropout(self.layers(self.layers_norm(tokens)))
