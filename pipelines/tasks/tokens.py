"""The tokens of a row that a worker computes, and the exchange between workers that divide a row's tokens."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional


class Tokens:
    """All tokens of a row. A strategy whose workers share a row's tokens has `DividedTokens` of
    `strategies.sharded.context_parallel` instead."""

    def local(self, values: Tensor) -> Tensor:
        """The values of this worker's tokens, given those of all; the second dimension is the token."""
        return values

    def positions(self, count: int, device: torch.device) -> Tensor:
        """The positions in the row of this worker's `count` tokens."""
        return torch.arange(count, device=device)

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Causal attention of this worker's tokens to all earlier ones of the row and themselves; all have the shape (rows, heads,
        tokens, width), with this worker's tokens."""
        return functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)

    def total(self, sums: Tensor) -> Tensor:
        """Sums over all tokens of a row, given those over this worker's."""
        return sums


class OverTokens(Protocol):
    """A module that computes its worker's tokens only."""

    tokens: Tokens


@dataclass(frozen=True)
class Divisible:
    """How a model's tokens can be divided among workers."""

    count: int
    """Tokens of a row."""
    modules: tuple[OverTokens, ...]
    """The modules whose `tokens` says which ones a worker computes."""
