"""Sums that are bitwise equal for every distribution of the shards over workers.

Floating-point addition is not associative, so a sum is a pure function of its terms only if its brackets are fixed.
Here they are a binary tree over the shards 0 … V − 1: the node over [a, b) adds the node up to a + the largest power of
two below b − a, and the node from there on. A worker that owns a contiguous block of shards computes the largest nodes
that lie inside it: a single one where the number of workers is a power of two and divides V, else at most 2·log₂ V.
The workers then exchange these partial sums, and everyone finishes the same tree.
"""

from collections.abc import Callable

from torch import Tensor

Span = tuple[int, int]
"""A node: the shards [start, stop)."""


def halves(span: Span) -> tuple[Span, Span]:
    """A node's two children; the span has two shards at least."""
    start, stop = span
    middle = start + (1 << (stop - start - 1).bit_length() - 1)
    return (start, middle), (middle, stop)


def largest_nodes(block: range, shards: int) -> list[Span]:
    """The fewest nodes of the tree over `shards` shards that make up a worker's block, from left to right."""

    def inside(span: Span) -> list[Span]:
        start, stop = span
        if stop <= block.start or block.stop <= start:
            return []
        if block.start <= start and stop <= block.stop:
            return [span]
        left, right = halves(span)
        return inside(left) + inside(right)

    return inside((0, shards))


def additions(block: range, shards: int) -> list[int]:
    """How often a worker adds its two newest partial sums, after each shard of its block in turn, until it has its largest nodes.

    As in a binary counter: a node is added up as soon as its last shard is there, so that no more than one sum per level
    of the tree exists at a time.
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


def tree_sum(span: Span, known: Callable[[Span], Tensor | None]) -> Tensor:
    """The sum at a node. `known` gives the sum of a node that is there already, of a single shard always; its tensors are
    added to in place."""
    found = known(span)
    if found is not None:
        return found
    left, right = halves(span)
    total = tree_sum(left, known)
    return total.add_(tree_sum(right, known))
