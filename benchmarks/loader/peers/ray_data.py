"""Ray Data, with files in random order and a local shuffle buffer."""

from collections.abc import Iterable
from typing import Any

import ray
from ray.data import DataContext

from benchmarks.loader.measure import CORES, Peer, run_peers
from benchmarks.loader.rows import part_files

BUFFER_BATCHES = 10


def batches(path: str, batch: int, state: None) -> Iterable[Any]:
    return ray.data.read_parquet(part_files(path), partitioning=None, shuffle="files").iter_torch_batches(
        batch_size=batch, prefetch_batches=2, local_shuffle_buffer_size=BUFFER_BATCHES * batch, local_shuffle_seed=0
    )


if __name__ == "__main__":
    ray.init(num_cpus=CORES, include_dashboard=False, log_to_driver=False, logging_level="ERROR", object_store_memory=2**30)
    DataContext.get_current().enable_progress_bars = False
    run_peers({"Ray Data": Peer(batches)})
