"""The tree all-reduce: adds the workers' partial sums, in the background of a backward pass where that is faster."""

import weakref
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread, current_thread

import torch
import torch.distributed as dist
from torch import Tensor

from pipelines.train.reduce.context import waits_for_workers
from pipelines.train.reduce.transports import PointToPoint, Transport, create_shared_memory
from pipelines.train.reduce.tree import largest_nodes, tree_sum

SLICE_BYTES = 16 * 2**20
"""Bytes reduced at a time on a CPU: data that has just arrived is still in the cache when it is added and sent on."""

CLOSE_SECONDS = 5.0
"""Longest wait for the thread, which may be waiting for workers that have died."""


class TreeAllReduce:
    """Adds the partial sums of all workers in the fixed order of the tree over the shards; every worker gets the same bits.

    It is a reduce-scatter, in which each of N workers adds up one N-th of the entries, followed by an all-gather. With one
    partial sum per worker it moves as many bytes as a ring all-reduce.
    """

    def __init__(self, blocks: Sequence[range], shards: int, rank: int, device: torch.device, largest_bytes: int) -> None:
        """`blocks` holds every worker's shards, and `largest_bytes` is the size of the largest partial sum. Collective."""
        self._nodes, self._root, self._rank = [largest_nodes(block, shards) for block in blocks], (0, shards), rank
        self._workers, counts = len(blocks), [len(nodes) for nodes in self._nodes]
        self._over_nccl = self._workers > 1 and device.type == "cuda" and "cuda:nccl" in str(dist.get_backend_config())
        may_share = self._workers > 1 and not self._over_nccl
        memory = create_shared_memory(counts, rank, min(largest_bytes, SLICE_BYTES)) if may_share else None
        self.is_in_memory = memory is not None
        self._transport: Transport = memory or PointToPoint(counts, rank)

    def reduce(self, partial_sums: Sequence[Tensor], numbers: Tensor | None = None) -> None:
        """Put the sum over all workers into partial_sums[0]. Collective.

        `partial_sums` are this worker's, each of shape (n,). Unless workers share memory, n must be a multiple of their number.
        A few `numbers` on the CPU are added up too, in any order; in shared memory that needs no message more.
        """
        if self._workers == 1:
            return
        if partial_sums[0].device.type == "cpu":
            self._reduce_slices(partial_sums, numbers)
        elif self._over_nccl:
            self._reduce_slice(partial_sums, numbers)
        else:  # several workers share a GPU, which NCCL does not support
            staged = [partial_sum.cpu() for partial_sum in partial_sums]
            self._reduce_slices(staged, numbers)
            partial_sums[0].copy_(staged[0])

    def _reduce_slices(self, partial_sums: Sequence[Tensor], numbers: Tensor | None) -> None:
        entries = SLICE_BYTES // partial_sums[0].element_size() // self._workers * self._workers
        for slices in zip(*(partial_sum.split(entries) for partial_sum in partial_sums), strict=True):
            self._reduce_slice(slices, numbers)
            numbers = None

    def _reduce_slice(self, partial_sums: Sequence[Tensor], numbers: Tensor | None) -> None:
        parts = [partial_sum.tensor_split(self._workers) for partial_sum in partial_sums]
        node_sums = dict(zip(self._nodes[self._rank], (by_worker[self._rank] for by_worker in parts), strict=True))
        for peer, peer_parts in self._transport.all_to_all(parts).items():
            node_sums.update(zip(self._nodes[peer], peer_parts, strict=True))
        own_part, total = parts[0][self._rank], tree_sum(self._root, node_sums.get)
        if total is not own_part:
            own_part.copy_(total)
        self._transport.all_gather(parts[0], numbers)


class Background:
    """Runs calls one after another while the caller continues: on a GPU in a separate CUDA stream, else in a thread."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._errors: SimpleQueue[BaseException | None] = SimpleQueue()
        self._pending = 0
        if self._stream is None:
            # A daemon thread: it may still be waiting for workers that have died when this process exits.
            thread = Thread(target=_run_calls, args=(self._calls, self._errors), name="all-reduce", daemon=True)
            thread.start()
            self._stop = weakref.finalize(self, _stop_thread, self._calls, thread)

    def submit(self, call: Callable[[], None]) -> None:
        """Run the call after the work that the caller has started so far."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                call()
        else:
            self._pending += 1
            self._calls.put(call)

    def close(self) -> None:
        """End the thread, after the calls that are running. It ends also when nobody has this object any more, and before the
        interpreter ends: a daemon thread that is then inside torch aborts the process."""
        if self._stream is None:
            self._stop()

    @waits_for_workers
    def wait(self) -> None:
        """Wait until all calls are done; on a GPU, the current stream waits instead of the caller. Raises what a call raised."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
        errors = [self._errors.get() for _ in range(self._pending)]
        self._pending = 0
        for error in errors:
            if error is not None:
                raise error


def _stop_thread(calls: "SimpleQueue[Callable[[], None] | None]", thread: Thread) -> None:
    calls.put(None)
    if thread is not current_thread():
        thread.join(CLOSE_SECONDS)


def _run_calls(calls: "SimpleQueue[Callable[[], None] | None]", errors: "SimpleQueue[BaseException | None]") -> None:
    while (call := calls.get()) is not None:
        try:
            call()
        except BaseException as error:  # raised by `wait`
            errors.put(error)
        else:
            errors.put(None)
        del call  # frees the tensors that it holds before waiting for the next one
