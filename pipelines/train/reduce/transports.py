"""Moves partial sums between workers: point to point, or through memory that the workers of one machine share."""

import logging
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Protocol
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor

from pipelines.train.reduce.context import waits_for_workers

log = logging.getLogger(__name__)

_LINE_BYTES = 64
"""A cache line of the CPU."""

Parts = Sequence[Tensor]
"""A partial sum cut into one part per worker; each worker adds up its own part of all partial sums."""


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
        buffers = iter(self._buffer(partial_sums[0][0], count * size).view(count, size))
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

    def _buffer(self, like: Tensor, size: int) -> Tensor:
        key = (like.dtype, like.device)
        if key not in self._receive_buffers or len(self._receive_buffers[key]) < size:
            self._receive_buffers[key] = like.new_empty(size)
        return self._receive_buffers[key][:size]


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
