"""The microbatches of single shards, each at another step. The rows of (shard, step) are those of every strategy."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pipelines.data.loader import Loader
from pipelines.data.loader.order import ORDER_VERSION
from pipelines.tasks.base import Batch

SKIPPED = 16
"""Microbatches that a stream leaves out, at most, to reach a later step; beyond that, reading begins anew."""


@dataclass
class _Stream:
    microbatches: Iterator[Batch]
    next: int
    """Step of the next microbatch, in the epoch that ends at step `end`."""
    end: int


class Streams(Loader):
    """A loader that reads shards one by one: those of this worker, and any other. Its position is only that of the next checkpoint."""

    def __init__(self, *arguments: Any, prefetch_bytes: int, **options: Any) -> None:
        self._capacity = len(arguments[3]) + 1
        """Number of shards that are read at a time, the last requested ones: one more than this worker has."""
        super().__init__(*arguments, prefetch_bytes=max(1, prefetch_bytes // self._capacity), **options)
        self._streams: dict[int, _Stream] = {}
        """By shard; the last requested one is last."""

    def go_to(self, step: int) -> None:
        """Move to step `step` of the run."""
        epoch, within = divmod(step, self.steps_per_epoch)
        self.load_state_dict({"epoch": epoch, "step": within, "order_version": ORDER_VERSION})

    def take(self, shard: int, step: int) -> Batch:
        """The shard's microbatch of step `step` of the run. The next ones are read ahead, up to the end of the epoch."""
        stream = self._streams.get(shard)
        if stream is None or not (stream.next <= step <= stream.next + SKIPPED and step < stream.end):
            self._close_stream(shard)
            stream = self._open_stream(shard, step)
        self._streams[shard] = self._streams.pop(shard, stream)
        for oldest in list(self._streams)[: -self._capacity]:
            self._close_stream(oldest)
        for _ in range(step - stream.next):
            next(stream.microbatches)
        stream.next = step + 1
        return next(stream.microbatches)

    def read_ahead(self) -> None:
        """Nothing: each shard's stream reads ahead by itself."""

    def close(self) -> None:
        for shard in list(self._streams):
            self._close_stream(shard)

    def _open_stream(self, shard: int, step: int) -> _Stream:
        self.go_to(step)
        return _Stream(self.stream(shard), step, (step // self.steps_per_epoch + 1) * self.steps_per_epoch)

    def _close_stream(self, shard: int) -> None:
        if shard in self._streams:
            self._streams.pop(shard).microbatches.close()  # type: ignore[attr-defined]  # it is a generator
