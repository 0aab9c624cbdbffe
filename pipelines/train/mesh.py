"""Maps workers to the rows and the part of a model that they compute.

    6 workers, 2 per replica, `train.shards` = 12

    ranks   replica   rows
    0  1    0         shards 0 to 3
    2  3    1         shards 4 to 7
    4  5    2         shards 8 to 11

`shards` are the logical data shards of the config, whose number never changes. The workers of a replica
may each hold a part of the model: the "parameter shards".
"""

from dataclasses import dataclass
from itertools import accumulate

from pipelines.data.loader import shard_range
from pipelines.train.reduce.context import WorkerContext


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
