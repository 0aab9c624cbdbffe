"""The microbatches of single shards, each at a step of its own. The rows of (shard, step) are those of every strategy."""

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
    """Step of the next one, in the epoch that ends at step `end`."""
    end: int


class Streams(Loader):
    """A loader that reads shards one by one: its own, and any other. Its own position is only that of the next checkpoint."""

    def __init__(self, *arguments: Any, prefetch_bytes: int, **named: Any) -> None:
        self._room = len(arguments[3]) + 1
        """Shards that are read at a time: the last ones that were asked for, which is one more than this worker's part."""
        super().__init__(*arguments, prefetch_bytes=max(1, prefetch_bytes // self._room), **named)
        self._streams: dict[int, _Stream] = {}
        """By shard; the last one was asked for last."""

    def go_to(self, step: int) -> None:
        """Move to step `step` of the run."""
        epoch, within = divmod(step, self.steps_per_epoch)
        self.load_state_dict({"epoch": epoch, "step": within, "order_version": ORDER_VERSION})

    def take(self, shard: int, step: int) -> Batch:
        """The shard's microbatch of step `step` of the run. The next ones are read ahead, up to the end of the epoch."""
        stream = self._streams.get(shard)
        if stream is None or not (stream.next <= step <= stream.next + SKIPPED and step < stream.end):
            self._leave(shard)
            stream = self._begun(shard, step)
        self._streams[shard] = self._streams.pop(shard, stream)
        for oldest in list(self._streams)[: -self._room]:
            self._leave(oldest)
        for _ in range(step - stream.next):
            next(stream.microbatches)
        stream.next = step + 1
        return next(stream.microbatches)

    def read_ahead(self) -> None:
        """Nothing: each shard's stream reads ahead by itself."""

    def close(self) -> None:
        for shard in list(self._streams):
            self._leave(shard)

    def _begun(self, shard: int, step: int) -> _Stream:
        self.go_to(step)
        return _Stream(self.stream(shard), step, (step // self.steps_per_epoch + 1) * self.steps_per_epoch)

    def _leave(self, shard: int) -> None:
        if shard in self._streams:
            self._streams.pop(shard).microbatches.close()  # type: ignore[attr-defined]  # it is a generator
