"""The microbatches of a worker's shards, each shard at a step of its own. The rows of (shard, step) are those of every strategy."""

from collections.abc import Iterator
from typing import Any

from pipelines.loader import Loader
from pipelines.loader.order import ORDER_VERSION
from pipelines.tasks.base import Batch


class Streams(Loader):
    """A loader that reads every owned shard by itself. Its own position is only that of the next checkpoint."""

    def __init__(self, *arguments: Any, prefetch_bytes: int, **named: Any) -> None:
        shards = len(arguments[3])
        super().__init__(*arguments, prefetch_bytes=max(1, prefetch_bytes // shards), **named)
        self._streams: dict[int, Iterator[Batch]] = {}
        self._next: dict[int, int] = {}

    def go_to(self, step: int) -> None:
        """Move to step `step` of the run."""
        epoch, within = divmod(step, self.steps_per_epoch)
        self.load_state_dict({"epoch": epoch, "step": within, "order_version": ORDER_VERSION})

    def take(self, shard: int, step: int) -> Batch:
        """The shard's microbatch of step `step` of the run. The next one is read ahead, up to the end of the epoch."""
        if self._next.get(shard) != step or step % self.steps_per_epoch == 0:
            self._leave(shard)
            self.go_to(step)
            self._streams[shard] = self.stream(shard)
        self._next[shard] = step + 1
        return next(self._streams[shard])

    def read_ahead(self) -> None:
        """Nothing: each shard's stream reads ahead by itself."""

    def close(self) -> None:
        for shard in list(self._streams):
            self._leave(shard)

    def _leave(self, shard: int) -> None:
        if shard in self._streams:
            self._streams.pop(shard).close()  # type: ignore[attr-defined]  # it is a generator
