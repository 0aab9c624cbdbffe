"""How workers divide a model: its layers (`train.strategy.tensor`), the tokens of a row (`train.strategy.context`), and its depth, which is
cut into the stages of a pipeline (`train.strategy.pipeline`). In terms that need no torch.distributed to be imported.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipelines.config.messages.words import show_count
from pipelines.errors import ConfigError
from pipelines.tasks.data import Batch


@dataclass(frozen=True)
class LayerPlan:
    """How the workers divide one module. Every worker has the whole input and the whole output of a module that is not divided."""

    by: Literal["columns", "gathered columns", "rows", "logits"]
    """`columns`: each worker computes some outputs of a linear layer, and has only those.
    `gathered columns`: then workers send them to each other.
    `rows`: a linear layer whose input is divided; the workers' outputs are summed. Or an embedding: each worker has some of its vectors.
    `logits`: a `Head`, each of whose outputs belongs to a class; their cross entropy is computed without gathering them."""
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


@dataclass(frozen=True)
class Link:
    """A part of a model: maps the output of the link before it, whose first dimension is the row, and the batch to its own output."""

    run: Callable[[Tensor, Batch], Tensor]
    modules: tuple[nn.Module, ...] = ()
    """The modules that `run` calls, which hold its parameters."""


class Stage(nn.Module):
    """Consecutive links of a model, which one worker computes."""

    def __init__(self, links: Sequence[Link]) -> None:
        super().__init__()
        self.parts = nn.ModuleList([module for link in links for module in link.modules])
        self._links = tuple(links)

    def forward(self, hidden: Tensor, batch: Batch) -> Tensor:
        if hidden.requires_grad:
            # Its gradient is sent to the stage before, and torch can neither send nor receive one with other strides, as `einsum` or a
            # permutation makes it.
            hidden = hidden.view_as(hidden)
            hidden.register_hook(torch.Tensor.contiguous)
        for link in self._links:
            hidden = link.run(hidden, batch)
        return hidden.contiguous()


def cut_stages(count: int, first: Link, blocks: Sequence[Link], last: Link | None = None) -> list[Stage]:
    """`count` stages of equally many blocks; with a remainder, the earlier ones have one more, since `last` often computes most.

    Raises ConfigError if there are fewer blocks than stages.
    """
    if count > len(blocks):
        raise ConfigError(
            f"train.strategy cuts the model into {count} stages, but it has {show_count(len(blocks), 'block')}; lower "
            "train.strategy.pipeline, choose schedule 1F1B, which has one stage per worker, or give the model more layers"
        )
    blocks_per_stage, remainder = divmod(len(blocks), count)
    ends = [number * blocks_per_stage + min(number, remainder) for number in range(count + 1)]
    groups = [list(blocks[start:end]) for start, end in pairwise(ends)]
    groups[0].insert(0, first)
    groups[-1] += [last] if last else []
    return [Stage(group) for group in groups]


def chain_links(network: nn.Sequential) -> list[Link]:
    """A network's layers as links, each of which has one layer with parameters."""
    groups: list[list[nn.Module]] = [[]]
    is_filled = False
    for layer in network:
        has_parameters = next(layer.parameters(), None) is not None
        if has_parameters and is_filled:
            groups.append([])
        is_filled = is_filled or has_parameters
        groups[-1].append(layer)

    def link(layers: tuple[nn.Module, ...]) -> Link:
        def run(hidden: Tensor, batch: Batch) -> Tensor:
            for layer in layers:
                hidden = layer(hidden)
            return hidden

        return Link(run, layers)

    return [link(tuple(layers)) for layers in groups]
