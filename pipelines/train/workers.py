"""A worker's rank, device and machine, the small values that workers exchange on the CPU, and the rows that each computes.

Every exchange is collective, and a single worker exchanges nothing. Functions in which a worker waits for others are marked, so that its
heartbeat distinguishes waiting from work. `Mesh` maps workers to rows, and to the part of the model that they compute:

    6 workers, 2 per replica, `train.shards` = 12

    ranks   replica   rows
    0  1    0         shards 0 to 3
    2  3    1         shards 4 to 7
    4  5    2         shards 8 to 11

`shards` are the logical data shards of the config, whose number never changes. The workers of a replica
may each hold a part of the model: the "parameter shards".
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeVar

import torch
import torch.distributed as dist

from pipelines.data.loader import shard_range

Function = TypeVar("Function", bound=Callable[..., object])

WAITING_FUNCTIONS = set[tuple[str, str]]()
"""File and name of each, as in a stack."""
Value = TypeVar("Value")
COLLECTIVE_SHARE = 0.8
"""Share of train.timeout_seconds that a collective operation may wait; the rest is for finding the missing worker."""


def waits_for_workers(function: Function) -> Function:
    """Decorate a function that returns only after other workers have sent or received."""
    code = function.__code__
    WAITING_FUNCTIONS.add((code.co_filename, code.co_name))
    return function


def all_gather_object(value: Value, group: dist.ProcessGroup | None = None) -> list[Value]:
    """Every worker's value, by rank."""
    if not dist.is_initialized() or dist.get_world_size(group) == 1:
        return [value]
    values = [value] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group=group)
    return values


def broadcast_from_rank0(value: Value, group: dist.ProcessGroup | None = None) -> Value:
    """Rank 0's value, on every worker."""
    if not dist.is_initialized() or dist.get_world_size(group) == 1:
        return value
    values = [value]
    dist.broadcast_object_list(values, src=0, group=group)
    return values[0]


@dataclass(frozen=True)
class WorkerContext:
    """The context of a worker. Collectives run in torch.distributed's default group, on the CPU and on the device."""

    rank: int = 0
    world_size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    machine: str = ""
    """Names the machine, differently from all others of the group; empty if it is unknown."""


@dataclass(frozen=True)
class Mesh:
    """Groups the workers into replicas of the model. A worker's rows depend only on its replica, the data-parallel coordinate."""

    context: WorkerContext
    workers_per_replica: int = 1
    """Workers that compute one replica together: they have consecutive ranks, and read the same rows."""
    shard_counts: tuple[int, ...] = ()
    """Number of shards of each replica; empty if all have equally many."""

    def __post_init__(self) -> None:
        assert self.context.world_size % self.workers_per_replica == 0, "a strategy rejects other numbers of workers"

    @property
    def replicas(self) -> int:
        return self.context.world_size // self.workers_per_replica

    @property
    def replica(self) -> int:
        """The replica that this worker belongs to: its data-parallel coordinate."""
        return self.context.rank // self.workers_per_replica

    def worker_shards(self, shards: int) -> range:
        """The shards whose rows this worker computes, out of `shards`."""
        return self.shards_by_replica(shards)[self.replica]

    def shards_by_replica(self, shards: int) -> list[range]:
        """The shards that each replica owns: contiguous, and in the replicas' order."""
        if not self.shard_counts:
            return [shard_range(replica, self.replicas, shards) for replica in range(self.replicas)]
        ends = list(accumulate(self.shard_counts))
        assert ends[-1] == shards, "every shard has one owner"
        return [range(end - count, end) for count, end in zip(self.shard_counts, ends, strict=True)]

    @property
    def first_ranks(self) -> range:
        """The first rank of each replica, whose value stands for the replica where all its workers have the same."""
        return range(0, self.context.world_size, self.workers_per_replica)
