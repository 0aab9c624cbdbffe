"""How workers divide a model: its layers (`train.strategy.tensor`), and the tokens of a row (`train.strategy.context`), in terms that need
no torch.distributed to be imported.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class LayerPlan:
    """How the workers divide one module. Every worker has the whole input and the whole output of a module that is not divided."""

    by: Literal["columns", "gathered columns", "rows", "logits", "whole"]
    """`columns`: each worker computes some outputs of a linear layer, and has only those.
    `gathered columns`: then workers send them to each other.
    `rows`: a linear layer whose input is divided; the workers' outputs are summed. Or an embedding: each worker has some of its vectors.
    `logits`: a linear layer, each of whose outputs belongs to a class; torch computes their cross entropy without gathering them.
    `whole`: a module without parameters; its output, computed from logits, is whole."""
    parts: int = 0
    """What a worker has a whole number of, such as heads; by default the divided outputs or inputs themselves."""
    unit: str = ""
    """Plural name of the parts."""


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
