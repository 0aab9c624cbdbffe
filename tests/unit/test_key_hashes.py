"""Hashes of keys are drained in buckets, and a hash that is there twice is found wherever its rows are."""

import numpy as np
import pytest

from pipelines.etl.statistics.partition import BUCKETS, KeyHashes, has_repeats


def drain_hashes(*batches: np.ndarray) -> dict[str, np.ndarray]:
    keys = KeyHashes()
    for batch in batches:
        keys.add(batch)
    table = keys.drain()
    assert len(keys.drain()) == 0, "each hash is drained once"
    return {row["bucket"]: np.frombuffer(row["hashes"], "<u8") for row in table.to_pylist()}


def repeats(*partitions: np.ndarray) -> bool:
    buckets = [drain_hashes(partition) for partition in partitions]
    return any(
        has_repeats([hashes_by_bucket[name] for hashes_by_bucket in buckets if name in hashes_by_bucket]) for name in set().union(*buckets)
    )


def test_buckets_are_those_of_the_highest_bits_and_hold_each_hash_once() -> None:
    random = np.random.default_rng(0).integers(0, 2**64 - 1, 10_000, np.uint64, endpoint=True)
    edges = np.array([0, 2**56 - 1, 2**56, 2**63, 2**64 - 1], np.uint64)
    hashes_by_bucket = drain_hashes(random[:4_000], edges, random[4_000:])
    assert len(hashes_by_bucket) == BUCKETS and {"0", "1", "128", "255"} <= hashes_by_bucket.keys()
    for bucket, hashes in hashes_by_bucket.items():
        assert (hashes >> np.uint64(56) == int(bucket)).all()
    assert np.sort(np.concatenate(list(hashes_by_bucket.values()))).tolist() == np.sort(np.concatenate([random, edges])).tolist()


@pytest.mark.parametrize("value", [0, 2**63, 2**64 - 1])
def test_a_repeat_is_found_in_one_partition_and_in_two(value: int) -> None:
    unique_hashes = np.random.default_rng(1).permutation(np.arange(1, 2_000, dtype=np.uint64) << np.uint64(50))
    repeat = np.array([value], np.uint64)
    assert not repeats(np.concatenate([unique_hashes[:900], repeat]), unique_hashes[900:])
    assert repeats(np.concatenate([repeat, unique_hashes, repeat]))
    assert repeats(np.concatenate([repeat, unique_hashes[:900]]), np.concatenate([unique_hashes[900:], repeat]))


def test_no_rows_have_no_repeats() -> None:
    assert drain_hashes() == {} and not has_repeats([np.empty(0, np.uint64)])
