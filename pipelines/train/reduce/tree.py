"""Sums that are bitwise equal for every distribution of the shards over workers.

Floating-point addition is not associative, so a sum is a pure function of its terms only if the order of additions is
fixed. Here a binary tree over the shards 0 … V − 1 fixes it: with m = a + the largest power of two below b − a, the node
over [a, b) is the sum of the nodes over [a, m) and [m, b). A worker that owns a contiguous block of shards computes the
largest nodes inside the block: one if the number of workers is a power of two and divides V, else at most 2·log₂ V.
The workers then exchange these partial sums, and each of them completes the same tree.
"""

from collections.abc import Callable

from torch import Tensor

Span = tuple[int, int]
"""A node: the shards [start, stop)."""


def halves(span: Span) -> tuple[Span, Span]:
    """A node's two children; the span must have at least two shards."""
    start, stop = span
    middle = start + (1 << (stop - start - 1).bit_length() - 1)
    return (start, middle), (middle, stop)


def largest_nodes(block: range, shards: int) -> list[Span]:
    """The fewest nodes of the tree over `shards` shards that together cover a worker's block, from left to right."""

    def inside(span: Span) -> list[Span]:
        start, stop = span
        if stop <= block.start or block.stop <= start:
            return []
        if block.start <= start and stop <= block.stop:
            return [span]
        first, second = halves(span)
        return inside(first) + inside(second)

    return inside((0, shards))


def additions(block: range, shards: int) -> list[int]:
    """For each shard of a worker's block, how many times the worker then adds its two newest partial sums.

    As in a binary counter, a node is added up as soon as its last shard is done. So at most one sum per level of the tree exists at a
    time. After the last shard, the largest nodes remain.
    """
    counts = dict.fromkeys(block, 0)

    def count(span: Span) -> None:
        if span[1] - span[0] > 1:
            counts[span[1] - 1] += 1
            for half in halves(span):
                count(half)

    for node in largest_nodes(block, shards):
        count(node)
    return list(counts.values())


def tree_sum(span: Span, node_sum: Callable[[Span], Tensor | None]) -> Tensor:
    """The sum at a node. `node_sum` returns the sum of a node if it is available, as it must be for a single shard; its tensors
    are modified in place."""
    total = node_sum(span)
    if total is not None:
        return total
    first, second = halves(span)
    total = tree_sum(first, node_sum)
    return total.add_(tree_sum(second, node_sum))
