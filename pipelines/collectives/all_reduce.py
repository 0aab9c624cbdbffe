"""Where the workers' nodes of the tree become one sum, and how that goes on beside the backward pass."""

from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread

import torch
import torch.distributed as dist
from torch import Tensor

from pipelines.collectives.transports import Exchange, Sent, shared
from pipelines.collectives.tree import largest_nodes, tree_sum

SLICE_BYTES = 16 * 2**20
"""Summed at a time on a processor: what has just arrived is still in its cache when it is added and given on."""


class Meeting:
    """Every worker's nodes, finished into the sum over all shards, the same on every worker.

    Each worker sums one n/N of the entries, of which all others give it theirs, and then they give each other the sums:
    for a single node a worker, the bytes of a ring all-reduce.
    """

    def __init__(self, plays: Sequence[range], shards: int, rank: int, device: torch.device, largest_bytes: int) -> None:
        """`largest_bytes`: of a node, at most. Collective, if there are several workers."""
        self._nodes, self._whole, self._rank = [largest_nodes(block, shards) for block in plays], (0, shards), rank
        self._workers, counts = len(plays), [len(nodes) for nodes in self._nodes]
        self._over_nccl = self._workers > 1 and device.type == "cuda" and "cuda:nccl" in str(dist.get_backend_config())
        in_memory = self._workers > 1 and not self._over_nccl
        exchange = shared(counts, rank, min(largest_bytes, SLICE_BYTES)) if in_memory else None
        self.is_in_memory = exchange is not None
        self._exchange: Exchange = exchange or Sent(counts, rank)

    def finish(self, own: Sequence[Tensor]) -> None:
        """Put the sum into own[0]; `own` are this worker's nodes, each of shape (n,), with n a multiple of the workers
        unless they meet in memory."""
        if self._workers == 1:
            return
        if own[0].device.type == "cpu":
            self._finish_slices(own)
        elif self._over_nccl:
            self._finish(own)
        else:  # workers that share a GPU, which NCCL refuses
            staged = [node.cpu() for node in own]
            self._finish_slices(staged)
            own[0].copy_(staged[0])

    def _finish_slices(self, own: Sequence[Tensor]) -> None:
        entries = SLICE_BYTES // own[0].element_size() // self._workers * self._workers
        for slices in zip(*(node.split(entries) for node in own), strict=True):
            self._finish(slices)

    def _finish(self, own: Sequence[Tensor]) -> None:
        parts = [node.tensor_split(self._workers) for node in own]
        nodes = dict(zip(self._nodes[self._rank], (of_workers[self._rank] for of_workers in parts), strict=True))
        for peer, given in self._exchange.all_to_all(parts).items():
            nodes.update(zip(self._nodes[peer], given, strict=True))
        mine, total = parts[0][self._rank], tree_sum(self._whole, nodes.get)
        if total is not mine:
            mine.copy_(total)
        self._exchange.all_gather(parts[0])


class Background:
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
        del call  # and what it holds, until the next one comes
