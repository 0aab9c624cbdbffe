"""Sums that come out the same, bit for bit, however the shards are dealt to workers.

Floating-point addition is not associative, so a sum is a pure function of its terms only if its brackets are fixed.
Here they are a binary tree over the shards 0 … V − 1: the node over [a, b) adds the node up to a + the largest power of
two below b − a, and the node from there on. A worker that plays a contiguous block of shards computes the largest nodes
that lie inside it: a single one where the number of workers is a power of two and divides V, else at most 2·log₂ V.
The workers then exchange these, and everyone finishes the same tree.
"""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
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


def tree_sum(span: Span, leaf: Callable[[Span], Tensor | None]) -> Tensor:
    """The node's sum. `leaf` gives the sum of a node where it is known, for single shards always, and is called from left
    to right; its tensors are added in place, so that no more than one per level of the tree exist at a time."""
    known = leaf(span)
    if known is not None:
        return known
    left, right = halves(span)
    total = tree_sum(left, leaf)
    return total.add_(tree_sum(right, leaf))


def worker_nodes(block: range, shards: int, term: Callable[[int], Tensor]) -> list[Tensor]:
    """Sums of the `largest_nodes` of a worker's block, from each shard's term, which is asked for once, in order."""
    return [tree_sum(span, lambda node: term(node[0]) if node[1] - node[0] == 1 else None) for span in largest_nodes(block, shards)]


def meet(own: Sequence[Tensor], plays: Sequence[range], shards: int) -> Tensor:
    """Every worker's nodes finished into the sum over all shards, the same on every worker.

    `own` are this worker's nodes, as `worker_nodes` gives them, each of shape (n,); `plays` is every worker's block.
    Each worker sums one n/N of the entries, of which all others send it theirs, and then they tell each other: for a
    single node a worker, the bytes of a ring all-reduce.
    """
    nodes = [largest_nodes(block, shards) for block in plays]
    size = len(own[0])
    if len(plays) == 1:
        return _finish(torch.stack(list(own)) if len(own) > 1 else own[0][None], nodes, shards)
    share = -(-size // len(plays))
    padded = torch.stack([torch.nn.functional.pad(node, (0, share * len(plays) - size)) for node in own])
    sent = padded.view(len(own), len(plays), share).transpose(0, 1).contiguous()
    received = sent.new_empty(sum(map(len, nodes)), share)
    counts = [len(of_worker) * share for of_worker in nodes]
    dist.all_to_all_single(received.view(-1), sent.view(-1), counts, [len(own) * share] * len(plays))
    total = sent.new_empty(share * len(plays))
    dist.all_gather_into_tensor(total, _finish(received, nodes, shards))
    return total[:size]


def _finish(sums: Tensor, nodes: Sequence[Sequence[Span]], shards: int) -> Tensor:
    """The tree's root from the workers' nodes, shape (nodes, n), in the order of workers."""
    known = dict(zip([span for of_worker in nodes for span in of_worker], sums, strict=True))
    return tree_sum((0, shards), known.get)
