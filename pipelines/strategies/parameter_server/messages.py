"""Messages between workers and servers: plain values and NumPy arrays, which Ray moves between processes without a copy.

Parameters are divided among the servers by a pure function of their sizes and the number of servers. Every parameter is a sequence of
blocks. Laid end to end, all blocks form a line, which is cut into parts of equal length. A cut near the boundary of two parameters is moved
there, so that only large parameters are split.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np
from torch import Tensor

from pipelines.config.train.train import Train
from pipelines.strategies.parameter_server.settings import Settings
from pipelines.strategies.parameter_server.watermarks import Watermarks

BLOCK = 64
"""Entries of a block. An optimizer's kernel may round the last few entries of a tensor differently from those that fill its vectors;
with cuts only between blocks, each entry is where it would be in the whole parameter."""
NEAR = 0.05
"""A cut moves by at most this share of a part."""
SUMS_OF_STEP = 7
"""Entries of `Contents.sums`."""
Layout = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape and strides of a tensor."""


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
    return sum(-(-size // BLOCK) for size in sizes)


def divide_parameters(sizes: Sequence[int], servers: int) -> list[list[ParameterSlice]]:
    """The slices of each server, in order, for parameters of `sizes` entries. Every entry is in exactly one slice.

    There must be at least as many blocks as servers.
    """
    ends = [0, *accumulate(-(-size // BLOCK) for size in sizes)]
    total = ends[-1]
    assert total >= servers, "the driver rejects more servers than blocks"
    cuts = [0]
    for number in range(1, servers):
        even = number * total // servers
        nearest = min(ends, key=lambda end: abs(end - even))
        cuts.append(nearest if abs(nearest - even) <= NEAR * total / servers else even)
    by_server: list[list[ParameterSlice]] = []
    for start, stop in pairwise([*cuts, total]):
        slices = []
        for number, (first, last) in enumerate(pairwise(ends)):
            begin, end = max(start, first), min(stop, last)
            if begin < end:
                slices.append(ParameterSlice(number, (begin - first) * BLOCK, min((end - first) * BLOCK, sizes[number])))
        by_server.append(slices)
    return by_server


@dataclass(frozen=True)
class Plan:
    """Settings and sizes of a run, which every server knows."""

    settings: Train
    total_steps: int
    steps_per_epoch: int
    steps_per_point: int
    """Steps between two points of the training curves."""
    layouts: tuple[Layout, ...]
    """Layouts of all trained parameters."""

    @property
    def is_sync(self) -> bool:
        return self.settings.strategy_as(Settings).is_sync

    def needs_norm(self, step: int) -> bool:
        """Whether the gradient's norm at `step` is needed: to clip it, or for a point of the curves."""
        steps = step + 1
        return self.settings.clip_norm is not None or steps % self.steps_per_point == 0 or steps == self.total_steps


@dataclass(frozen=True)
class Push:
    """One update of one server's part: the gradient of a shard's microbatch."""

    shard: int
    step: int
    version: int
    """The version of the parameters that the gradient was computed with."""
    gradient: np.ndarray | None
    """Float32, shape (entries of the part,); None for a microbatch without rows."""
    auxiliary: np.ndarray
    """Float64: 1 for every slice that the pass used, else 0; then loss, weight, rows, 1 if there are rows, and the norm (-1 if it
    was not measured); then, for the first server, the changes of the model's buffers."""


@dataclass(frozen=True)
class Turn:
    """The microbatch that a worker computes next, in an asynchronous mode."""

    shard: int = -1
    step: int = -1
    is_over: bool = False
    """There is no microbatch: all updates of the epoch have been applied, or the servers are halted."""


@dataclass(frozen=True)
class Pulled:
    """A server's answer to a pull. It is empty, except for `is_halted`, if the synchronous step may not begin."""

    is_halted: bool = False
    version: int = 0
    values: np.ndarray | None = None
    """The part's parameters: float32, shape (entries,); None if the worker has this version."""
    buffers: list[np.ndarray] = field(default_factory=list)


@dataclass(frozen=True)
class Ready:
    """The part's summed gradient of a synchronous step, as far as the norm over all parts needs it."""

    step: int
    weight: float
    norms: dict[int, float]
    """The norm of every parameter that this server holds whole and some shard used."""
    split_gradients: dict[int, tuple[int, np.ndarray]]
    """Start and summed gradient of this server's slices of split parameters."""


@dataclass(frozen=True)
class StepSums:
    """Sums over as many updates as there are shards; in mode `sync`, those of one step."""

    number: int
    """Counted from 1."""
    grad_norm: float
    loss_sum: float
    weight: float
    rows: float
    staleness: float
    """Mean number of updates that were applied between a worker's pull and its push."""
    most_stale: float


@dataclass
class Contents:
    """Everything that a server holds: enough to continue in another process."""

    run: str
    """Identifies the timeline of all servers: they are always loaded together, under a new name."""
    plan: Plan
    slices: list[ParameterSlice]
    values: Tensor
    """The part's parameters: float32, shape (entries,)."""
    optimizer: list[dict[str, Tensor]]
    """The optimizer's state of each slice; empty before the first update."""
    watermarks: Watermarks
    buffers: list[Tensor] = field(default_factory=list)
    """The model's buffers, on the first server."""
    buffer_remainders: list[Tensor] = field(default_factory=list)
    """Changes of integer buffers that are not yet whole numbers per step."""
    applied: int = 0
    """Steps taken, in mode `sync`."""
    collected: dict[int, Push] = field(default_factory=dict)
    """Updates of the step in progress, by shard, in mode `sync`."""
    ready: Ready | None = None
    sums: list[float] = field(default_factory=lambda: [0.0] * SUMS_OF_STEP)
    """Of the current StepSums: norms, their number, losses, weights, rows, staleness, greatest staleness."""
    steps: list[StepSums] = field(default_factory=list)
    """Since the last checkpoint."""
    halt_at: int | None = None
    """No microbatch of this step or a later one may begin; 0 in an asynchronous mode, for which only gaps may be filled."""
    failure: str = ""
    sequence: int = 0
    """Number of commands carried out."""
