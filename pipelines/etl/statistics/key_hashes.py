"""Finds whether a key repeats, from the pass that fits the encoders: equal keys have equal hashes.

1. `KeyHashes` collects the hashes of a partition, and drains them in buckets by their highest bits: a value of Spark's for thousands
   of rows, since a shuffle of single hashes takes longer than all that is computed of them.
2. `has_repeated_key` brings each bucket to one task, which sorts it.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

BUCKETS = 256
_BUCKET_BITS = 8
_ROWS_PER_TASK = 4_000_000


class KeyHashes:
    """The hashes of the rows of one partition since the last call of `drain`."""

    def __init__(self) -> None:
        self._pending: list[np.ndarray] = []

    def add(self, hashes: np.ndarray) -> None:
        """Add a batch, uint64 of shape (rows,)."""
        self._pending.append(hashes.copy())  # a view would keep the whole batch in memory

    def drain(self) -> pa.Table:
        """(bucket, hashes): the little-endian bytes of the hashes of each bucket, without empty buckets."""
        hashes = np.sort(np.concatenate([np.empty(0, np.uint64), *self._pending])).astype("<u8")
        self._pending = []
        edges = np.searchsorted(hashes >> np.uint64(64 - _BUCKET_BITS), np.arange(BUCKETS + 1))
        filled = np.flatnonzero(np.diff(edges))
        blobs = [hashes[edges[bucket] : edges[bucket + 1]].tobytes() for bucket in filled]
        return pa.table({"bucket": pa.array(map(str, filled), pa.string()), "hashes": pa.array(blobs, pa.binary())})


def has_repeated_key(drained: DataFrame, rows: int) -> bool:
    """Whether a hash is there twice. `drained` are (bucket, hashes) of all partitions, with about this number of rows."""
    tasks = max(drained.sparkSession.sparkContext.defaultParallelism, rows // _ROWS_PER_TASK)
    buckets = drained.repartition(tasks, "bucket").mapInArrow(_search_buckets, "is_repeated boolean").collect()
    return any(row.is_repeated for row in buckets)


def _search_buckets(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"is_repeated": [repeats_in_bucket(batches)]})


def repeats_in_bucket(batches: Iterable[pa.RecordBatch]) -> bool:
    """Whether a bucket of these (bucket, hashes) has a hash twice."""
    by_bucket: dict[str, list[np.ndarray]] = {}
    for batch in batches:
        for bucket, hashes in zip(batch.column("bucket").to_pylist(), batch.column("hashes").to_pylist(), strict=True):
            by_bucket.setdefault(bucket, []).append(np.frombuffer(hashes, "<u8"))
    return any(map(has_repeats, by_bucket.values()))


def has_repeats(pieces: list[np.ndarray]) -> bool:
    """Whether a value is in these arrays twice."""
    values = np.sort(np.concatenate(pieces))
    return bool((values[1:] == values[:-1]).any())
