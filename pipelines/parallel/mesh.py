"""Which worker computes which rows."""

from pipelines.collectives.context import WorkerContext
from pipelines.loader import shards_of


def owned_shards(context: WorkerContext, shards: int) -> range:
    """The shards this worker computes, of `shards`."""
    return shards_of(context.rank, context.world_size, shards)
