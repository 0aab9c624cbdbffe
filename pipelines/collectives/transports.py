"""Transports of partial sums between workers: point to point, or through memory that the workers of one machine share."""

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

log = logging.getLogger(__name__)

_LINE_BYTES = 64
"""Of the processor's cache."""

Parts = Sequence[Tensor]
"""A partial sum cut into as many parts as there are workers; each worker adds up its own part of all partial sums."""


class Transport(Protocol):
    """The two halves of an all-reduce, both of them collective."""

    def all_to_all(self, own: Sequence[Parts]) -> dict[int, list[Tensor]]:
        """Give every other worker its part of this worker's partial sums. Returns, by worker, this worker's part of theirs,
        which may be written to until `all_gather`."""

    def all_gather(self, parts: Parts) -> None:
        """Give all others this worker's part, and fill in the parts of the others."""


class PointToPoint:
    """torch.distributed's sends and receives, from device to device. All parts are of one size.

    They copy nothing on the way; torch's all-to-all and all-gather copy a worker's own part as well.
    """

    def __init__(self, counts: Sequence[int], rank: int) -> None:
        """`counts`: how many partial sums each worker has."""
        self._counts, self._rank = counts, rank
        self._arrived: dict[tuple[torch.dtype, torch.device], Tensor] = {}
        """Receive buffers by dtype and device. They are kept, since fresh pages cost as much as the sum."""

    def all_to_all(self, own: Sequence[Parts]) -> dict[int, list[Tensor]]:
        share = len(own[0][0])
        assert all(len(part) == share for part in own[0]), "sizes are multiples of the workers"
        count = sum(self._counts[peer] for peer in self._others())
        room = iter(self._room(own[0][0], count * share).view(count, share))
        arriving = {peer: [next(room) for _ in range(self._counts[peer])] for peer in self._others()}
        awaited = [dist.P2POp(dist.irecv, part, peer) for peer, parts in arriving.items() for part in parts]
        _send_and_receive(awaited + [dist.P2POp(dist.isend, parts[peer], peer) for peer in self._others() for parts in own])
        return arriving

    def all_gather(self, parts: Parts) -> None:
        awaited = [dist.P2POp(dist.irecv, parts[peer], peer) for peer in self._others()]
        _send_and_receive(awaited + [dist.P2POp(dist.isend, parts[self._rank], peer) for peer in self._others()])

    def _others(self) -> Iterator[int]:
        """The other ranks, in another order for every worker, lest all send to the same one first."""
        return ((self._rank + step) % len(self._counts) for step in range(1, len(self._counts)))

    def _room(self, like: Tensor, size: int) -> Tensor:
        key = (like.dtype, like.device)
        if key not in self._arrived or len(self._arrived[key]) < size:
            self._arrived[key] = like.new_empty(size)
        return self._arrived[key][:size]


def _send_and_receive(operations: list[dist.P2POp]) -> None:
    for work in dist.batch_isend_irecv(operations):
        work.wait()


class SharedMemory:
    """Memory that the workers of one machine share. A barrier follows each half.

    No third barrier is needed before the memory is used again. The part of a partial sum that is meant for a worker is read,
    and written to, by that worker alone, before the barrier of `all_gather`, and filled anew after it. The part that a worker
    gives to all is read by the others after that barrier, and filled anew only after the barrier of the next `all_to_all`,
    which they reach when they have read it.
    """

    def __init__(self, memory: Tensor, counts: Sequence[int], rank: int) -> None:
        """`memory`: uint8 of shape (workers, partial sums of each, parts, bytes), the same for all."""
        self._memory, self._counts, self._rank = memory, counts, rank
        self._nothing = torch.zeros(1)

    def all_to_all(self, own: Sequence[Parts]) -> dict[int, list[Tensor]]:
        for number, parts in enumerate(own):
            for peer in self._others():
                self._part(self._rank, number, peer, parts[peer]).copy_(parts[peer])
        self._barrier()
        mine = own[0][self._rank]
        return {peer: [self._part(peer, number, self._rank, mine) for number in range(self._counts[peer])] for peer in self._others()}

    def all_gather(self, parts: Parts) -> None:
        self._part(self._rank, 0, self._rank, parts[self._rank]).copy_(parts[self._rank])
        self._barrier()
        for peer in self._others():
            parts[peer].copy_(self._part(peer, 0, peer, parts[peer]))

    def _others(self) -> Iterator[int]:
        return (peer for peer in range(len(self._counts)) if peer != self._rank)

    def _part(self, worker: int, partial_sum: int, part: int, like: Tensor) -> Tensor:
        return self._memory[worker, partial_sum, part, : like.nbytes].view(like.dtype)

    def _barrier(self) -> None:
        """An all-reduce over Gloo, so that a worker that died or hangs ends it as any other collective; torch's own barrier
        would take the GPU where there is one. It takes the default group: no other collective may run there meanwhile."""
        dist.all_reduce(self._nothing)


def shared_memory(counts: Sequence[int], rank: int, largest_bytes: int) -> SharedMemory | None:
    """A transport for partial sums of so many bytes; None unless all workers see the same memory. Collective."""
    workers = len(counts)
    part_bytes = (largest_bytes // workers // _LINE_BYTES + 2) * _LINE_BYTES  # some parts have an entry more than others
    memory = _shared_bytes(workers * max(counts) * workers * part_bytes, rank)
    return None if memory is None else SharedMemory(memory.view(workers, max(counts), workers, part_bytes), counts, rank)


def _shared_bytes(size: int, rank: int) -> Tensor | None:
    """Bytes that all workers see, None if some cannot. They lie in no folder, and are gone with the last worker. Collective."""
    offered: list[tuple[str, str, str] | None] = [None]
    descriptor = -1
    try:
        if rank == 0:
            with suppress(AttributeError, OSError):  # not on Linux; not allowed
                name = f"lockstep-{uuid4().hex}"
                descriptor = os.memfd_create(name)
                os.posix_fallocate(descriptor, 0, size)
                offered = [(f"/proc/{os.getpid()}/fd/{descriptor}", name, _host())]
        dist.broadcast_object_list(offered, 0)
        memory = _mapped(*offered[0], size) if offered[0] else None
        seen = torch.tensor(memory is not None, dtype=torch.uint8)
        dist.all_reduce(seen, dist.ReduceOp.MIN)
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    return memory if seen else None


def _mapped(path: str, name: str, host: str, size: int) -> Tensor | None:
    """None unless the path is that memory here; with a warning where the host is the same, so that it should have been."""
    try:
        if _host() != host:
            return None
        if name in os.readlink(path) and os.stat(path).st_size == size:
            return torch.from_file(path, shared=True, size=size, dtype=torch.uint8)
        reason = "its processes have other numbers, as in another container"
    except (OSError, RuntimeError) as error:
        reason = str(error)
    log.warning("a worker on worker 0's host does not see its memory (%s): gradients are sent, which takes longer", reason)
    return None


def _host() -> str:
    """This host: its name and network. Hosts that are network namespaces of one machine do not share memory either."""
    return f"{socket.gethostname()} {os.readlink('/proc/self/ns/net')}"
