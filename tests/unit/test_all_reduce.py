"""Exchanges: in shared memory or sent, workers come to the same sums, bit for bit."""

import os
from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random
from time import sleep
from typing import Any

import pytest
import torch
from groups import run_group
from torch import Tensor

from pipelines.data.loader import shard_range
from pipelines.train import ordered_all_reduce
from pipelines.train.ordered_all_reduce import Span, TreeAllReduce, largest_nodes, tree_sum
from pipelines.train.workers import WorkerContext

pytestmark = pytest.mark.slow

WORKERS, SHARDS = 3, 7
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
EVEN, UNEVEN = (3, 999, 30, 6, 0, 12_000), (1, 2, 4, 1_000)
"""Sizes of tensors that are reduced one after the other. What is sent has to be a multiple of the workers."""
LARGEST_BYTES = 8 * max(EVEN)
ROUNDS = 5


def terms(size: int, dtype: torch.dtype) -> Tensor:
    """Of all shards; sums depend on the order in which they are added."""
    generator = torch.Generator().manual_seed(size)
    scales = 10.0 ** torch.arange(SHARDS, dtype=dtype)[:, None]
    return torch.randn(SHARDS, size, generator=generator, dtype=dtype) * scales


def _node(span: Span, leaves: Tensor) -> Tensor:
    return tree_sum(span, lambda node: leaves[node[0]].clone() if node[1] - node[0] == 1 else None)


def _slow(barrier: Callable[..., None], rank: int) -> Callable[..., None]:
    """The barrier, before and after which this worker is late at times, and others at others."""
    random = Random(rank)

    def late(self: ordered_all_reduce.SharedMemory, numbers: Tensor | None = None) -> None:
        sleep(random.choice([0, 0, 0, 1e-3]))
        barrier(self, numbers)
        sleep(random.choice([0, 0, 0, 1e-3]))

    return late


def reduce_in_group(
    context: WorkerContext, sees_memory: tuple[bool, ...], slice_bytes: int, sizes: tuple[int, ...]
) -> tuple[bool, list[Tensor]]:
    """Whether workers shared memory, and their sums of every size and dtype, without a pause between them."""
    if not sees_memory[context.rank]:
        ordered_all_reduce._map_file = lambda *_: None
    ordered_all_reduce.SLICE_BYTES = slice_bytes
    ordered_all_reduce.SharedMemory._barrier = _slow(ordered_all_reduce.SharedMemory._barrier, context.rank)  # type: ignore[method-assign]
    owned = [shard_range(rank, WORKERS, SHARDS) for rank in range(WORKERS)]
    all_reducer = TreeAllReduce(owned, SHARDS, context.rank, context.device, LARGEST_BYTES)
    results = []
    for _ in range(ROUNDS):
        for size, dtype in product(sizes, DTYPES):
            leaves = terms(size, dtype)
            partial_sums = [_node(span, leaves) for span in largest_nodes(owned[context.rank], SHARDS)]
            numbers = torch.tensor([1.0, size * context.rank])
            all_reducer.reduce(partial_sums, numbers)
            assert numbers.tolist() == [WORKERS, size * sum(range(WORKERS))]
            results.append(partial_sums[0])
    return all_reducer.is_in_memory, results


@pytest.mark.parametrize(
    ("sees_memory", "slice_bytes", "sizes"),
    [
        ((True, True, True), 2**24, EVEN + UNEVEN),
        ((True, True, True), 2**12, EVEN + UNEVEN),
        ((True, True, False), 2**12, EVEN),  # as on another machine
    ],
    ids=["in memory", "in memory, sliced", "sent, sliced"],
)
def test_p5_sums_are_the_same_in_memory_and_sent(
    tmp_path: Path, sees_memory: tuple[bool, ...], slice_bytes: int, sizes: tuple[int, ...]
) -> None:
    expected = [_node((0, SHARDS), terms(size, dtype)) for size, dtype in product(sizes, DTYPES)] * ROUNDS
    for in_memory, actual in run_group(WORKERS, tmp_path, reduce_in_group, sees_memory, slice_bytes, sizes):
        assert in_memory == all(sees_memory)
        assert all(torch.equal(actual_sum, expected_sum) for actual_sum, expected_sum in zip(actual, expected, strict=True))


def open_memory_files(context: WorkerContext) -> dict[str, Any]:
    memory = ordered_all_reduce._map_anonymous_file(4_096, context.rank)
    links = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
    return {"seen": memory is not None, "open": [link for link in links if "memfd:lockstep" in link]}


def test_no_file_of_shared_memory_stays_open(tmp_path: Path) -> None:
    """Shared memory has no name in any folder either: dead workers leave nothing behind."""
    assert run_group(2, tmp_path, open_memory_files) == [{"seen": True, "open": []}] * 2


def open_files_without_memory(context: WorkerContext) -> dict[str, Any]:
    """On a machine that gives no such memory."""

    def posix_fallocate(*_: int) -> None:
        raise OSError(1, "Operation not permitted")

    os.posix_fallocate = posix_fallocate  # type: ignore[assignment]
    return open_memory_files(context)


def test_where_no_memory_can_be_shared_workers_send(tmp_path: Path) -> None:
    assert run_group(2, tmp_path, open_files_without_memory) == [{"seen": False, "open": []}] * 2


def test_only_the_memory_itself_is_taken_for_it(caplog: pytest.LogCaptureFixture) -> None:
    host, name = ordered_all_reduce._host(), "lockstep-1"
    descriptor = os.memfd_create(name)
    os.posix_fallocate(descriptor, 0, 64)
    path = f"/proc/{os.getpid()}/fd/{descriptor}"
    assert ordered_all_reduce._map_file(path, name, host, 64) is not None
    assert ordered_all_reduce._map_file(path, name, f"another {host}", 64) is None
    assert not caplog.messages
    assert ordered_all_reduce._map_file(path, "lockstep-2", host, 64) is None  # another process has that number here
    assert ordered_all_reduce._map_file(path, name, host, 128) is None  # another model's
    assert ordered_all_reduce._map_file(f"/proc/{os.getpid()}/fd/9999", name, host, 64) is None
    assert (
        "cannot map its shared memory (it sees other process ids, as in another container); gradients go through sockets"
        in caplog.messages[0]
    )
    assert "No such file or directory" in caplog.messages[-1]
    os.close(descriptor)
