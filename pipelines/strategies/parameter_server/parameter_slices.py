"""Divides the entries of all parameters among the servers: a pure function of the parameters' sizes and the number of servers.

Every parameter is a sequence of blocks. Laid end to end, all blocks form a line, which is cut into parts of equal length. A cut
near the boundary of two parameters is moved there, so that only large parameters are split.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

BLOCK = 64
"""Entries of a block. An optimizer's kernel may round the last few entries of a tensor differently from those that fill its vectors;
with cuts only between blocks, each entry is where it would be in the whole parameter."""
NEAR = 0.05
"""A cut moves by at most this share of a part."""


@dataclass(frozen=True)
class ParameterSlice:
    """Entries [start, stop) of parameter `number`, in the order of its memory."""

    number: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start

    @property
    def span(self) -> slice:
        return slice(self.start, self.stop)


def blocks(sizes: Sequence[int]) -> int:
    """Number of blocks, and so the largest number of servers, for parameters of `sizes` entries."""
    return sum(map(_blocks, sizes))


def divide_parameters(sizes: Sequence[int], servers: int) -> list[list[ParameterSlice]]:
    """The slices of each server, in order, for parameters of `sizes` entries. Every entry is in exactly one slice.

    There must be at least as many blocks as servers.
    """
    ends = [0, *accumulate(map(_blocks, sizes))]
    cuts = _cuts(ends, servers)
    return [_slices_between(sizes, ends, start, stop) for start, stop in pairwise(cuts)]


def _blocks(size: int) -> int:
    return -(-size // BLOCK)


def _cuts(ends: Sequence[int], servers: int) -> list[int]:
    total = ends[-1]
    assert total >= servers, "the driver rejects more servers than blocks"
    cuts = [0]
    for number in range(1, servers):
        even = number * total // servers
        nearest = min(ends, key=lambda end: abs(end - even))
        cuts.append(nearest if abs(nearest - even) <= NEAR * total / servers else even)
    return [*cuts, total]


def _slices_between(sizes: Sequence[int], ends: Sequence[int], start: int, stop: int) -> list[ParameterSlice]:
    slices = []
    for number, (first, last) in enumerate(pairwise(ends)):
        begin, end = max(start, first), min(stop, last)
        if begin < end:
            slices.append(ParameterSlice(number, (begin - first) * BLOCK, min((end - first) * BLOCK, sizes[number])))
    return slices
