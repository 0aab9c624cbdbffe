"""The sums of a synchronous step: over the shards in the fixed tree, as strategy `exact` adds them; and the norms of their parts."""

from collections.abc import Sequence
from math import prod

import numpy as np
import torch
from torch import Tensor

from pipelines.strategies.parameter_server.messages import Layout
from pipelines.strategies.parameter_server.parts import ParameterSlice
from pipelines.train.reduce.tree import tree_sum


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
