"""A model as a chain of links, and the stages of a pipeline into which it is cut."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from pipelines.config.messages.words import show_count
from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch


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
        hidden = _make_gradient_contiguous(hidden)
        for link in self._links:
            hidden = link.run(hidden, batch)
        return hidden.contiguous()


def _make_gradient_contiguous(hidden: Tensor) -> Tensor:
    """Return the same values with a gradient that is contiguous: it is sent to the stage before, and torch can neither send nor receive
    one with other strides, as `einsum` or a permutation makes it."""
    if not hidden.requires_grad:
        return hidden
    hidden = hidden.view_as(hidden)
    hidden.register_hook(torch.Tensor.contiguous)
    return hidden


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
    return [Link(_call_in_order(tuple(layers)), tuple(layers)) for layers in _groups(network)]


def _groups(network: nn.Sequential) -> Iterator[list[nn.Module]]:
    group: list[nn.Module] = []
    for layer in network:
        if _has_parameters(layer) and any(map(_has_parameters, group)):
            yield group
            group = []
        group.append(layer)
    yield group


def _has_parameters(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _call_in_order(layers: Sequence[nn.Module]) -> Callable[[Tensor, Batch], Tensor]:
    def run(hidden: Tensor, batch: Batch) -> Tensor:
        for layer in layers:
            hidden = layer(hidden)
        return hidden

    return run
