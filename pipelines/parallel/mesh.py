"""Which worker computes which rows."""

from pipelines.collectives.place import Place
from pipelines.loader import shards_of


def owned_shards(place: Place, shards: int) -> range:
    """The shards this worker computes, of `shards`."""
    return shards_of(place.rank, place.world_size, shards)
