"""Where the workers' nodes of the tree become one sum, and how that goes on beside the backward pass."""

from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from threading import Thread

import torch
import torch.distributed as dist
from torch import Tensor

from pipelines.train.tree import largest_nodes, tree_sum

SLICE_BYTES = 16 * 2**20
"""Sent at a time: what has just arrived is still in the processor's cache when it is added and sent on."""


class Meeting:
    """Every worker's nodes, finished into the sum over all shards, the same on every worker.

    Each worker sums one n/N of the entries, of which all others send it theirs, and then they tell each other: for a
    single node a worker, the bytes of a ring all-reduce. Nothing is copied on the way; torch's all-to-all and all-gather
    copy a worker's own part as well.
    """

    def __init__(self, plays: Sequence[range], shards: int, rank: int) -> None:
        self._nodes, self._whole, self._rank = [largest_nodes(block, shards) for block in plays], (0, shards), rank
        self._arrived: dict[tuple[torch.dtype, torch.device], Tensor] = {}
        """What others sent, by dtype and device; for the next meeting too, since fresh pages cost as much as the sum."""

    @property
    def workers(self) -> int:
        """Sizes of what is summed are multiples of it."""
        return len(self._nodes)

    def finish(self, own: Sequence[Tensor]) -> None:
        """Put the sum into own[0]; `own` are this worker's nodes, each of shape (n,) with n a multiple of `workers`."""
        if self.workers == 1:
            return
        if own[0].device.type == "cpu":
            entries = SLICE_BYTES // own[0].element_size() // self.workers * self.workers
            for slices in zip(*(node.split(entries) for node in own), strict=True):
                self._finish(slices)
        elif "cuda:nccl" in str(dist.get_backend_config()):
            self._finish(own)
        else:  # Gloo: workers that share a GPU, which NCCL refuses
            staged = [node.cpu() for node in own]
            self._finish(staged)
            own[0].copy_(staged[0])

    def _finish(self, own: Sequence[Tensor]) -> None:
        share = len(own[0]) // self.workers
        parts = [node.split(share) for node in own]
        nodes = dict(zip(self._nodes[self._rank], (of_workers[self._rank] for of_workers in parts), strict=True))
        room = iter(self._room(own[0], sum(len(self._nodes[peer]) for peer in self._others()) * share).split(share))
        sent, awaited = [], []
        for peer in self._others():
            arriving = dict(zip(self._nodes[peer], room, strict=False))
            nodes |= arriving
            awaited += [dist.P2POp(dist.irecv, part, peer) for part in arriving.values()]
            sent += [dist.P2POp(dist.isend, of_workers[peer], peer) for of_workers in parts]
        _exchange(awaited + sent)
        mine, total = parts[0][self._rank], tree_sum(self._whole, nodes.get)
        if total is not mine:
            mine.copy_(total)
        awaited = [dist.P2POp(dist.irecv, parts[0][peer], peer) for peer in self._others()]
        sent = [dist.P2POp(dist.isend, mine, peer) for peer in self._others()]
        _exchange(awaited + sent)

    def _others(self) -> Iterator[int]:
        """In an order of their own for every worker, lest all send to the same one first."""
        return ((self._rank + step) % self.workers for step in range(1, self.workers))

    def _room(self, like: Tensor, size: int) -> Tensor:
        key = (like.dtype, like.device)
        if key not in self._arrived or len(self._arrived[key]) < size:
            self._arrived[key] = like.new_empty(size)
        return self._arrived[key][:size]


def _exchange(operations: list[dist.P2POp]) -> None:
    for work in dist.batch_isend_irecv(operations):
        work.wait()


class Beside:
    """Does calls one after the other while the caller goes on: on a GPU on a stream of their own, else in a thread."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._answers: SimpleQueue[BaseException | None] = SimpleQueue()
        self._waiting = 0
        if self._stream is None:
            # A daemon: it may wait for workers that are gone when this one has to leave.
            Thread(target=_serve, args=(self._calls, self._answers), name="meeting", daemon=True).start()

    def do(self, call: Callable[[], None]) -> None:
        """Do it after what the caller has done until now."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                call()
        else:
            self._waiting += 1
            self._calls.put(call)

    def wait(self) -> None:
        """Until everything is done, for the GPU's stream as well. Raises what a call raised."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
        answers = [self._answers.get() for _ in range(self._waiting)]
        self._waiting = 0
        for error in answers:
            if error is not None:
                raise error


def _serve(calls: "SimpleQueue[Callable[[], None]]", answers: "SimpleQueue[BaseException | None]") -> None:
    while True:
        call = calls.get()
        try:
            call()
        except BaseException as error:  # `wait` raises it where it is waited for
            answers.put(error)
        else:
            answers.put(None)
