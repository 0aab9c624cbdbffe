"""The loader: an endless sequence of epochs over a split, which connects order and reader, and prefetches.

A producer thread assembles the next batches while the caller computes; `Windows` decodes in its own threads. Both
hold a bounded number of bytes, and both end with the iterator, however it ends.
"""

import time
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

import torch
from torch import Tensor

from pipelines.data.loader.batches import Chunk, Memory, Windows, chunks
from pipelines.data.loader.order import ORDER_VERSION, Epoch, Order, row_keys
from pipelines.data.loader.producer import Producer
from pipelines.data.loader.reader import Reader
from pipelines.data.versions.schema import ROW_KEYS, ROW_NUMBERS
from pipelines.data.versions.versions import Version
from pipelines.errors import ConfigError, DatasetError

Batch = dict[str, Tensor]
CHUNK_BYTES = 16 * 2**20
"""Limit of a chunk of batches, beside a 16th of the prefetch memory: assembling one batch at a time would be mostly overhead."""
INDEX_BYTES = 8
"""Bytes of a row's position in a window."""
PAGE_BYTES = 2 * 2**20
"""Bytes of a memory page; the last page of a window is rarely full."""
LIBRARIES_BYTES = 32 * 2**20
"""Overhead of Arrow's allocator and of the threads."""


class Loader:
    """Batches of the shards that one worker owns.

    Usable by itself, under Ray or under torchrun:

        loader = Loader(open_version("data/digits"), "train", Order(global_batch=512), owned_shards=shard_range(0, 2, 8))
        for batch in loader: ...   # one epoch; the next `for` is the next epoch

    A batch contains the rows of every owned shard, shard after shard: `microbatch` rows each, fewer in the last step with
    remainder "keep". Its tensors share memory with each other; copy before writing into them.
    With `row_numbers` it also contains each row's number within the split, with `row_keys` its ROW_KEYS.

    Raises ConfigError if the split has fewer rows than one global batch, CorruptError from the iterator.
    """

    def __init__(
        self,
        version: Version,
        split: str,
        order: Order,
        owned_shards: range | None = None,
        *,
        row_numbers: bool = False,
        row_keys: bool = False,
        device: torch.device | str = "cpu",
        cache_bytes: int = 2**30,
        prefetch_bytes: int = 256 * 2**20,
        threads: int = 1,
    ) -> None:
        self.order = order
        self.owned_shards = range(order.shards) if owned_shards is None else owned_shards
        self._reader = Reader(version, split)
        self._prefetch_bytes, self._threads = prefetch_bytes, threads
        self._chunk_bytes = max(1, min(CHUNK_BYTES, prefetch_bytes // 16))
        self.rows = int(self._reader.group_rows.sum())
        self.steps_per_epoch = order.steps(self.rows)
        self.remainder_rows = order.remainder_rows(self.rows) if order.remainder == "drop" else 0
        """Rows that an epoch leaves out, different ones in each epoch."""
        self.wait_seconds = 0.0
        """Total time that the caller has waited for batches."""
        self._epoch, self._step = 0, 0
        self._ahead: tuple[tuple[int, int], Producer[Chunk]] | None = None
        """The position from which prefetching has begun."""
        self._running: set[Producer[Chunk]] = set()
        """Those of epochs and streams that have not ended."""
        self._row_numbers, self._row_keys = row_numbers, row_keys
        if reserved := {ROW_NUMBERS, ROW_KEYS} & {column.name for column in self._reader.columns}:
            raise ConfigError(f"a column of {version.root} is called {reserved.pop()}, a name that batches need; rename the feature")
        self._memory = Memory(
            self._reader, row_numbers or row_keys, torch.device(device), self._reader.decoded_bytes <= cache_bytes, threads
        )
        self._device = torch.device(device)

    @property
    def memory_bound_bytes(self) -> int:
        """Upper bound on memory: the cache, or a window per shard; prefetched batches; buffers of the threads. Without a cache it does not
        depend on the dataset's size."""
        largest = int(self._reader.groups.stored_rows.max()) * (self._reader.row_bytes + INDEX_BYTES)
        window = (self.order.window + 1) * largest + PAGE_BYTES
        windows = self._reader.decoded_bytes if self._memory.cache is not None else len(self.owned_shards) * window
        batch_bytes = len(self.owned_shards) * self.order.microbatch * self._reader.row_bytes
        buffers = window + self._threads * (window + 2 * largest) + 4 * max(self._chunk_bytes, batch_bytes)
        return windows + self._prefetch_bytes + buffers + LIBRARIES_BYTES

    def state_dict(self) -> dict[str, int]:
        """The position of the next batch."""
        ended = self._step >= self.steps_per_epoch
        return {"epoch": self._epoch + ended, "step": 0 if ended else self._step, "order_version": ORDER_VERSION}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume at a position: the first batch costs the same anywhere in an epoch. Raises DatasetError if the position was counted in
        another version of the order."""
        if state["order_version"] != ORDER_VERSION:
            raise DatasetError(f"the position is of order version {state['order_version']}, ours is {ORDER_VERSION}; start the run anew")
        self._epoch, self._step = int(state["epoch"]), int(state["step"])

    def __len__(self) -> int:
        return self.steps_per_epoch

    def __iter__(self) -> Iterator[Batch]:
        """The rest of the current epoch. Leaving early keeps the position."""
        if self._step >= self.steps_per_epoch:
            self._epoch, self._step = self._epoch + 1, 0
        self.read_ahead()
        assert self._ahead is not None
        (_, producer), self._ahead = self._ahead, None
        for batch in self._batches(producer, self._epoch):
            self._step += 1
            yield batch
        self._epoch, self._step = self._epoch + 1, 0

    def read_ahead(self) -> None:
        """Start prefetching from the current position before the next `for`. `close` ends it."""
        state = self.state_dict()
        position = state["epoch"], state["step"]
        if self._ahead is None or self._ahead[0] != position:
            self._end_ahead()
            self._ahead = position, self._producer(self.owned_shards, *position)

    def assign_shards(self, shards: range) -> None:
        """Read these shards from the current position on, in the next `for`; the rows of a step do not depend on their owners."""
        self._end_ahead()
        self.owned_shards = shards

    def close(self) -> None:
        """End the threads: of what `read_ahead` began, and of every iterator that has not ended, such as one that an error's traceback
        holds."""
        self._end_ahead()
        for producer in list(self._running):
            producer.close()

    def _end_ahead(self) -> None:
        if self._ahead is not None:
            (_, producer), self._ahead = self._ahead, None
            producer.close()

    def stream(self, shard: int) -> Iterator[Batch]:
        """One shard's microbatches, from the current position to the end of the epoch; the position does not change."""
        yield from self._batches(self._producer(range(shard, shard + 1), self._epoch, self._step), self._epoch)

    def split_by_shard(self, batch: Batch) -> list[Batch]:
        """Split a batch into one microbatch for each owned shard; some are empty in a smaller last step."""
        order, rows = self.order, len(next(iter(batch.values())))
        if rows == len(self.owned_shards) * order.microbatch:
            counts = [order.microbatch] * len(self.owned_shards)
        else:
            remainder = order.remainder_rows(self.rows)
            counts = [(shard + 1) * remainder // order.shards - shard * remainder // order.shards for shard in self.owned_shards]
        parts = {name: values.split(counts) for name, values in batch.items()}
        return [{name: split[number] for name, split in parts.items()} for number in range(len(self.owned_shards))]

    def _producer(self, owned_shards: range, epoch: int, step: int) -> Producer[Chunk]:
        return Producer(self._chunks(owned_shards, epoch, step), room=max(1, self._prefetch_bytes // 4 // self._chunk_bytes))

    def _batches(self, producer: Producer[Chunk], epoch: int) -> Iterator[Batch]:
        self._running.add(producer)
        stride, start = row_keys(self.order.seed, epoch)
        try:
            while True:
                started = time.perf_counter()
                chunk = producer.take()
                self.wait_seconds += time.perf_counter() - started
                if chunk is None:
                    return
                if not self._row_keys:
                    yield from chunk.batches()
                    continue
                for batch in chunk.batches():
                    columns = {name: values for name, values in batch.items() if self._row_numbers or name != ROW_NUMBERS}
                    yield {**columns, ROW_KEYS: batch[ROW_NUMBERS] * stride + start}
        finally:
            producer.close()
            self._running.discard(producer)

    def _chunks(self, owned_shards: range, number: int, step: int) -> Generator[Chunk, None, None]:
        self._memory.prepare_thread()
        epoch = Epoch(self.order, self._reader.group_rows, number)
        shards = {shard: epoch.shard(shard) for shard in owned_shards}
        windows = Windows(
            self._reader, self._memory, shards, step * self.order.microbatch, ahead_bytes=self._prefetch_bytes // 2, threads=self._threads
        )
        with closing(windows):
            for chunk in chunks(epoch, shards, windows, step, self._chunk_bytes):
                yield chunk.to(self._device, self._memory.stream)
