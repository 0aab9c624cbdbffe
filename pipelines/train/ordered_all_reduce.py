"""Tree all-reduce: sums over workers that are bitwise equal for every distribution of the shards over them.

Floating-point addition is not associative, so a sum is a pure function of its terms only if the order of additions is
fixed. Here a binary tree over the shards 0 … V − 1 fixes it: with m = a + the largest power of two below b − a, the node
over [a, b) is the sum of the nodes over [a, m) and [m, b). A worker that owns a contiguous block of shards computes the
largest nodes inside the block: one if the number of workers is a power of two and divides V, else at most 2·log₂ V.
The workers then exchange these partial sums, point to point or through memory that one machine's workers share, and each of
them completes the same tree; in the background of a backward pass where that is faster.
"""

import logging
import os
import socket
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread, current_thread
from typing import Protocol
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor

from pipelines.train.workers import waits_for_workers

Span = tuple[int, int]
"""A node: the shards [start, stop)."""
SLICE_BYTES = 16 * 2**20
"""Bytes reduced at a time on a CPU: data that has just arrived is still in the cache when it is added and sent on."""
CLOSE_SECONDS = 5.0
"""Longest wait for the thread, which may be waiting for workers that have died."""
log = logging.getLogger(__name__)
_LINE_BYTES = 64
"""A cache line of the CPU."""
Parts = Sequence[Tensor]
"""A partial sum cut into one part per worker; each worker adds up its own part of all partial sums."""


def halves(span: Span) -> tuple[Span, Span]:
    """A node's two children; the span must have at least two shards."""
    start, stop = span
    middle = start + (1 << (stop - start - 1).bit_length() - 1)
    return (start, middle), (middle, stop)


def largest_nodes(block: range, shards: int) -> list[Span]:
    """The fewest nodes of the tree over `shards` shards that together cover a worker's block, from left to right."""

    def inside(span: Span) -> list[Span]:
        start, stop = span
        if stop <= block.start or block.stop <= start:
            return []
        if block.start <= start and stop <= block.stop:
            return [span]
        first, second = halves(span)
        return inside(first) + inside(second)

    return inside((0, shards))


def additions(block: range, shards: int) -> list[int]:
    """For each shard of a worker's block, how many times the worker then adds its two newest partial sums.

    As in a binary counter, a node is added up as soon as its last shard is done. So at most one sum per level of the tree exists at a
    time. After the last shard, the largest nodes remain.
    """
    counts = dict.fromkeys(block, 0)

    def count(span: Span) -> None:
        if span[1] - span[0] > 1:
            counts[span[1] - 1] += 1
            for half in halves(span):
                count(half)

    for node in largest_nodes(block, shards):
        count(node)
    return list(counts.values())


def tree_sum(span: Span, node_sum: Callable[[Span], Tensor | None]) -> Tensor:
    """The sum at a node. `node_sum` returns the sum of a node if it is available, as it must be for a single shard; its tensors
    are modified in place."""
    total = node_sum(span)
    if total is not None:
        return total
    first, second = halves(span)
    total = tree_sum(first, node_sum)
    return total.add_(tree_sum(second, node_sum))


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


class Transport(Protocol):
    """The two halves of an all-reduce, both collective."""

    def all_to_all(self, partial_sums: Sequence[Parts]) -> dict[int, list[Tensor]]:
        """Send every other worker its part of this worker's partial sums. Returns this worker's part of theirs, by rank; the
        caller may overwrite these tensors until `all_gather`."""

    def all_gather(self, parts: Parts, numbers: Tensor | None = None) -> None:
        """Send this worker's part to all others, and receive theirs into `parts`. Also add up a few `numbers` over workers, in place."""


class PointToPoint:
    """Uses torch.distributed's sends and receives, from device to device. All parts have the same size.

    torch's all-to-all and all-gather would also copy a worker's own part.
    """

    def __init__(self, counts: Sequence[int], rank: int) -> None:
        """`counts` is the number of partial sums of each worker."""
        self._counts, self._rank = counts, rank
        self._receive_buffers: dict[tuple[torch.dtype, torch.device], Tensor] = {}
        """Receive buffers by dtype and device. They are reused, since allocating fresh pages costs as much as the sum."""

    def all_to_all(self, partial_sums: Sequence[Parts]) -> dict[int, list[Tensor]]:
        size = len(partial_sums[0][0])
        assert all(len(part) == size for part in partial_sums[0]), "sizes are multiples of the number of workers"
        count = sum(self._counts[peer] for peer in self._peers())
        like = partial_sums[0][0]
        buffer = self._receive_buffers.get((like.dtype, like.device))
        if buffer is None or len(buffer) < count * size:
            buffer = self._receive_buffers[like.dtype, like.device] = like.new_empty(count * size)
        buffers = iter(buffer[: count * size].view(count, size))
        received = {peer: [next(buffers) for _ in range(self._counts[peer])] for peer in self._peers()}
        receives = [dist.P2POp(dist.irecv, part, peer) for peer, parts in received.items() for part in parts]
        sends = [dist.P2POp(dist.isend, parts[peer], peer) for peer in self._peers() for parts in partial_sums]
        _send_and_receive(receives + sends)
        return received

    def all_gather(self, parts: Parts, numbers: Tensor | None = None) -> None:
        if numbers is not None:
            dist.all_reduce(numbers)
        receives = [dist.P2POp(dist.irecv, parts[peer], peer) for peer in self._peers()]
        _send_and_receive(receives + [dist.P2POp(dist.isend, parts[self._rank], peer) for peer in self._peers()])

    def _peers(self) -> Iterator[int]:
        """The other ranks, starting after this one, so that not all workers send to the same rank first."""
        return ((self._rank + step) % len(self._counts) for step in range(1, len(self._counts)))


@waits_for_workers
def _send_and_receive(operations: list[dist.P2POp]) -> None:
    for work in dist.batch_isend_irecv(operations):
        work.wait()


class SharedMemory:
    """Uses memory that the workers of one machine share. Each half ends with a barrier between writing and reading.

    No third barrier is needed before the memory is reused. A part meant for one worker is read and overwritten by that
    worker alone, before the barrier of `all_gather`, and refilled only after it. The part that a worker publishes to all is
    read by the others after that barrier. It is refilled only after the barrier of the next `all_to_all`, which the others
    reach once they have read it.
    """

    def __init__(self, memory: Tensor, counts: Sequence[int], rank: int) -> None:
        """`memory` is uint8 of shape (workers, partial sums of each, parts, bytes), and the same memory on all workers."""
        self._memory, self._counts, self._rank = memory, counts, rank
        self._nothing = torch.zeros(1)

    def all_to_all(self, partial_sums: Sequence[Parts]) -> dict[int, list[Tensor]]:
        for number, parts in enumerate(partial_sums):
            for peer in self._peers():
                self._part(self._rank, number, peer, parts[peer]).copy_(parts[peer])
        self._barrier()
        own_part = partial_sums[0][self._rank]
        return {peer: [self._part(peer, number, self._rank, own_part) for number in range(self._counts[peer])] for peer in self._peers()}

    def all_gather(self, parts: Parts, numbers: Tensor | None = None) -> None:
        self._part(self._rank, 0, self._rank, parts[self._rank]).copy_(parts[self._rank])
        self._barrier(numbers)
        for peer in self._peers():
            parts[peer].copy_(self._part(peer, 0, peer, parts[peer]))

    def _peers(self) -> Iterator[int]:
        return (peer for peer in range(len(self._counts)) if peer != self._rank)

    def _part(self, worker: int, partial_sum: int, part: int, like: Tensor) -> Tensor:
        return self._memory[worker, partial_sum, part, : like.nbytes].view(like.dtype)

    def _barrier(self, numbers: Tensor | None = None) -> None:
        """Wait for all workers by an all-reduce over Gloo, of `numbers` if there are some.

        Like any other collective, it fails or times out if a worker dies or hangs. torch's barrier would use the GPU where there is
        one. It uses the default group, where no other collective may run meanwhile.
        """
        dist.all_reduce(self._nothing if numbers is None else numbers)


def create_shared_memory(counts: Sequence[int], rank: int, largest_bytes: int) -> SharedMemory | None:
    """Create a transport for partial sums of up to `largest_bytes`; None unless all workers can map the same memory. Collective."""
    workers = len(counts)
    part_bytes = (largest_bytes // workers // _LINE_BYTES + 2) * _LINE_BYTES  # some parts have one entry more than others
    memory = _map_anonymous_file(workers * max(counts) * workers * part_bytes, rank)
    return None if memory is None else SharedMemory(memory.view(workers, max(counts), workers, part_bytes), counts, rank)


def _map_anonymous_file(size: int, rank: int) -> Tensor | None:
    """Map an anonymous file on all workers; None if one of them cannot. It has no path, and ends with the last worker. Collective."""
    offered: list[tuple[str, str, str] | None] = [None]
    descriptor = -1
    try:
        if rank == 0:
            with suppress(AttributeError, OSError):  # not on Linux, or not allowed
                name = f"lockstep-{uuid4().hex}"
                descriptor = os.memfd_create(name)
                os.posix_fallocate(descriptor, 0, size)
                offered = [(f"/proc/{os.getpid()}/fd/{descriptor}", name, _host())]
        dist.broadcast_object_list(offered, 0)
        memory = _map_file(*offered[0], size) if offered[0] else None
        is_mapped = torch.tensor(memory is not None, dtype=torch.uint8)
        dist.all_reduce(is_mapped, dist.ReduceOp.MIN)
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    return memory if is_mapped else None


def _map_file(path: str, name: str, host: str, size: int) -> Tensor | None:
    """Map the memory at `path`; None if this worker cannot, with a warning if it is on rank 0's host and should be able to."""
    try:
        if _host() != host:
            return None
        if name in os.readlink(path) and os.stat(path).st_size == size:
            return torch.from_file(path, shared=True, size=size, dtype=torch.uint8)
        reason = "it sees other process ids, as in another container"
    except (OSError, RuntimeError) as error:
        reason = str(error)
    log.warning("a worker on worker 0's host cannot map its shared memory (%s); gradients go through sockets, which is slower", reason)
    return None


def _host() -> str:
    """The name and network namespace of this host: namespaces that act as hosts do not share memory either."""
    return f"{socket.gethostname()} {os.readlink('/proc/self/ns/net')}"
