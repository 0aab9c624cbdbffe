"""Maps workers to the rows and the part of a model that they compute.

    ranks of 6 workers, 2 of them to a replica      replica   rows of `train.shards` = 12
    0  1                                            0         shards 0 to 3
    2  3                                            1         shards 4 to 7
    4  5                                            2         shards 8 to 11

`shards` are the logical data shards of the config, whose number never changes. The parts of a model that is spread over a
replica's workers are called "parameter shards".
"""

from dataclasses import dataclass

from pipelines.collectives.context import WorkerContext
from pipelines.loader import shards_of


@dataclass(frozen=True)
class Mesh:
    """The workers as replicas of a model. Rows follow from a worker's replica, its data-parallel coordinate, alone."""

    context: WorkerContext
    workers_per_replica: int = 1
    """Workers that compute one model together: neighbours by rank, which read the same rows."""

    def __post_init__(self) -> None:
        assert self.context.world_size % self.workers_per_replica == 0, "a strategy refuses other numbers of workers"

    @property
    def replicas(self) -> int:
        return self.context.world_size // self.workers_per_replica

    @property
    def replica(self) -> int:
        """The replica that this worker belongs to: its data-parallel coordinate."""
        return self.context.rank // self.workers_per_replica

    def owned_shards(self, shards: int) -> range:
        """The shards whose rows this worker computes, of `shards`."""
        return shards_of(self.replica, self.replicas, shards)

    def shards_by_replica(self, shards: int) -> list[range]:
        """The shards that each replica owns."""
        return [shards_of(replica, self.replicas, shards) for replica in range(self.replicas)]

    @property
    def first_ranks(self) -> range:
        """The first worker of each replica, which represents it where all of its workers have the same value."""
        return range(0, self.context.world_size, self.workers_per_replica)
