"""Walks rows down the trees of a forest, from the roots to the leaves.

A pair is a row and a tree. Some levels below the root most pairs are at a leaf, and only the others walk on: a tree of 31 leaves has up to
20 levels, and a row takes about six decisions.
"""

from typing import NamedTuple

import torch
from torch import Tensor

PAIRS_AT_ONCE = 2**16
"""Pairs that walk together, so that their numbers stay in a processor's cache."""
_LEVELS_AT_ONCE = 3
"""Decisions between two looks at which pairs have arrived."""


class Nodes(NamedTuple):
    """The nodes of trees, side by side: each entry of shape (trees · nodes,)."""

    feature: Tensor
    threshold: Tensor
    missing_left: Tensor
    children: Tensor
    """int64 of twice the length: of each node the left and the right child, which are the node itself for a leaf."""
    is_set: Tensor
    members: Tensor
    """bool of shape (trees · nodes, values)."""
    value: Tensor
    roots: Tensor
    """int64 of shape (trees,)."""


def leaf_values(nodes: Nodes, inputs: Tensor) -> Tensor:
    """The value of each row's leaf in each tree: float64 of shape (rows, trees), from float32 of shape (rows, inputs)."""
    if not len(inputs):
        return nodes.value.new_empty(0, len(nodes.roots))
    rows_at_once = max(1, PAIRS_AT_ONCE // len(nodes.roots))
    return torch.cat([nodes.value.take(_find_leaves(nodes, rows)) for rows in inputs.split(rows_at_once)])


def _find_leaves(nodes: Nodes, inputs: Tensor) -> Tensor:
    """The node of each row's leaf in each tree: int64 of shape (rows, trees)."""
    rows, columns = inputs.shape
    leaves = nodes.roots.repeat(rows)
    values, may_be_missing, has_sets = inputs.flatten(), bool(inputs.isnan().any()), bool(nodes.is_set.any())
    pairs = torch.arange(len(leaves), device=inputs.device)
    row_starts = pairs.div(len(nodes.roots), rounding_mode="floor") * columns
    at = leaves
    while len(at):
        for _ in range(_LEVELS_AT_ONCE):
            compared = values.take(row_starts + nodes.feature.take(at))
            goes_right = compared > nodes.threshold.take(at)
            if may_be_missing:
                goes_right |= compared.isnan() & ~nodes.missing_left.take(at)
            if has_sets:
                _decide_sets(nodes, at, compared, goes_right)
            at = nodes.children.take(2 * at + goes_right)
        leaves[pairs] = at
        walks_on = (nodes.children.take(2 * at) != at).nonzero().squeeze(1)
        pairs, row_starts, at = pairs[walks_on], row_starts[walks_on], at[walks_on]
    return leaves.view(rows, -1)


def _decide_sets(nodes: Nodes, at: Tensor, compared: Tensor, goes_right: Tensor) -> None:
    """Decide, in place, where pairs at a decision on categories go: left if the value is a member of the set."""
    pairs = nodes.is_set.take(at).nonzero().squeeze(1)
    values = nodes.members.shape[1]
    value = compared[pairs]
    member = at[pairs] * values + value.nan_to_num(0.0).clamp(0, values - 1).long()
    goes_right[pairs] = ~(nodes.members.take(member) & (value < values))
