"""A server's part of the parameters, with their optimizer; and the model's buffers, on the first server.

The gradients of a synchronous step are summed over the shards in the fixed tree, as strategy `exact` adds them.
"""

from collections.abc import Sequence
from math import prod

import numpy as np
import torch
from torch import Tensor, nn

from pipelines.strategies.parameter_server.messages import Contents, Layout
from pipelines.strategies.parameter_server.parameter_slices import ParameterSlice
from pipelines.train.buffers import ModelBuffers
from pipelines.train.optimizers import create_optimizer
from pipelines.train.reduce.tree import tree_sum
from pipelines.train.update import learning_rate, set_rate

SUMS = 5
"""Entries of `Push.auxiliary` between the flags of slices and the changes of buffers."""


class Part:
    """Takes over the tensors of `contents`, and changes its `values` and `buffer_remainders` in place."""

    def __init__(self, contents: Contents) -> None:
        self._contents, self._plan = contents, contents.plan
        self._sizes = [entries.size for entries in contents.slices]
        self._parameters = [nn.Parameter(view) for view in contents.values.split(self._sizes)]
        self._optimizer = create_optimizer(self._plan.settings, self._parameters)
        for parameter, state in zip(self._parameters, contents.optimizer, strict=True):
            if state:
                self._optimizer.state[parameter] = state
        self._buffers = ModelBuffers(_module_with(contents.buffers))

    @property
    def optimizer(self) -> list[dict[str, Tensor]]:
        """The live state of each slice."""
        return [dict(self._optimizer.state.get(parameter, {})) for parameter in self._parameters]

    @property
    def buffers(self) -> list[Tensor]:
        """Copies of the buffers."""
        return self._buffers.clones()

    def split(self, auxiliary: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split `Push.auxiliary`, or a sum of several, into flags of slices, sums, and changes of buffers."""
        used, sums, changes = auxiliary.split([len(self._parameters), SUMS, self._buffers.numel])
        return used, sums, changes

    def set_gradients(self, gradient: Tensor, used: Tensor) -> list[Tensor]:
        """Give every used slice its entries of the gradient. Unused slices have no gradient, so that the optimizer skips them."""
        for parameter, values, shards_using in zip(self._parameters, gradient.split(self._sizes), used.tolist(), strict=True):
            parameter.grad = values if shards_using else None
        return [parameter.grad for parameter in self._parameters if parameter.grad is not None]

    def take_step(self, number: int) -> None:
        """Take an optimizer step at the rate of step `number`."""
        plan = self._plan
        set_rate(self._optimizer, learning_rate(plan.settings, number, plan.total_steps, plan.steps_per_epoch))
        self._optimizer.step()
        self._optimizer.zero_grad()

    def move_buffers(self, mean: Tensor) -> None:
        """Move buffers by the mean change of a step."""
        self._buffers.move(self._buffers.clones(), mean)

    def move_buffers_by_share(self, changes: Tensor) -> None:
        """Move buffers by a shard's part of the mean change. Integers move once the parts make a whole number."""
        if not len(changes):
            return
        shards = self._plan.settings.shards
        self._contents.buffer_remainders = self._contents.buffer_remainders or [torch.zeros_like(changes)]
        (remainders,) = self._contents.buffer_remainders
        remainders += changes
        before = self._buffers.clones()
        is_integer = torch.cat([torch.full((values.numel(),), not values.is_floating_point()) for values in before])
        mean = torch.where(is_integer, (remainders / shards).floor(), remainders / shards)
        remainders -= mean * shards
        self._buffers.move(before, mean)


def _module_with(buffers: list[Tensor]) -> nn.Module:
    module = nn.Module()
    for number, values in enumerate(buffers):
        module.register_buffer(f"buffer_{number}", values)
    return module


def sum_over_shards(by_shard: Sequence[np.ndarray | None], size: int = 0) -> Tensor:
    """The sum over all shards of one array of each; None stands for `size` zeros."""

    def leaf(span: tuple[int, int]) -> Tensor | None:
        start, stop = span
        if stop - start > 1:
            return None
        values = by_shard[start]
        return torch.zeros(size) if values is None else torch.tensor(values)

    return tree_sum((0, len(by_shard)), leaf)


def parameter_norms(
    gradient: Tensor, used: Tensor, slices: Sequence[ParameterSlice], layouts: Sequence[Layout]
) -> tuple[dict[int, float], dict[int, tuple[int, np.ndarray]]]:
    """By parameter that some shard used: the norm of one that this server holds whole, start and gradient of a slice of a split one.

    The norm of a split parameter cannot be computed from those of its slices with the same rounding.
    """
    norms, split_gradients, start = {}, {}, 0
    for entries, shards_using in zip(slices, used.tolist(), strict=False):
        values = gradient[start : start + entries.size]
        start += entries.size
        shape, strides = layouts[entries.number]
        if shards_using and entries.size == prod(shape):
            norms[entries.number] = float(torch.linalg.vector_norm(values.clone().as_strided(shape, strides)))
        elif shards_using:
            split_gradients[entries.number] = (entries.start, values.numpy().copy())
    return norms, split_gradients
