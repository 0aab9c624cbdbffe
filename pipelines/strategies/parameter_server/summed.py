"""The sums of a synchronous step: over the shards in the fixed tree, as strategy `exact` adds them; and the norms of their parts."""

from collections.abc import Sequence
from math import prod

import numpy as np
import torch
from torch import Tensor

from pipelines.strategies.parameter_server.messages import Layout
from pipelines.strategies.parameter_server.parts import ParameterSlice
from pipelines.train.reduce.tree import tree_sum


def summed(by_shard: Sequence[np.ndarray | None], entries: int = 0) -> Tensor:
    """The sum over all shards of one array of each; None stands for `entries` zeros."""

    def leaf(span: tuple[int, int]) -> Tensor | None:
        start, stop = span
        if stop - start > 1:
            return None
        found = by_shard[start]
        return torch.zeros(entries) if found is None else torch.tensor(found)

    return tree_sum((0, len(by_shard)), leaf)


def norms(
    gradient: Tensor, used: Tensor, pieces: Sequence[ParameterSlice], layouts: Sequence[Layout]
) -> tuple[dict[int, float], dict[int, tuple[int, np.ndarray]]]:
    """The norm of every whole parameter that some shard used, and start and entries of pieces of split ones, by parameter.

    The norm of a split parameter cannot be computed from those of its pieces with the same rounding.
    """
    whole, split, start = {}, {}, 0
    for piece, shards_using in zip(pieces, used.tolist(), strict=False):
        values = gradient[start : start + piece.size]
        start += piece.size
        shape, strides = layouts[piece.number]
        if shards_using and piece.size == prod(shape):
            whole[piece.number] = float(torch.linalg.vector_norm(values.clone().as_strided(shape, strides)))
        elif shards_using:
            split[piece.number] = (piece.start, values.numpy().copy())
    return whole, split
