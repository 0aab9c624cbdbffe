"""Decodes the windows of an epoch ahead of their use, in threads, within a bound on bytes."""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pipelines.loader.order import Shard
from pipelines.loader.reader import Reader

ROW_NUMBERS = "row_number"
"""Name under which a batch carries its rows' numbers within the split, on request."""


def carried(values: np.ndarray) -> np.ndarray:
    """torch gathers no uint16; the same bytes are moved as int16."""
    return values.view(np.int16) if values.dtype == np.uint16 else values


class Window(NamedTuple):
    """A window's rows, in the order in which they are visited."""

    rows: dict[str, Tensor]
    """Tensor columns, of shape (rows, *column.shape)."""
    numbers: Tensor
    """The rows' numbers within the split, shape (rows,), int64."""


class Cache:
    """The whole split in memory, decoded row group by row group as it is first asked for."""

    def __init__(self, reader: Reader, device: torch.device) -> None:
        self.device = device
        rows = int(reader.group_rows.sum())
        self.rows = {
            column.name: torch.from_numpy(carried(np.empty((rows, *column.shape), column.dtype))).to(device) for column in reader.columns
        }
        self._reader = reader
        self._first_row = np.cumsum(reader.group_rows) - reader.group_rows
        self._filled = np.zeros(len(reader.groups), bool)
        self._locks = [Lock() for _ in reader.groups]

    def fill(self, groups: np.ndarray) -> None:
        for number in np.unique(groups).tolist():
            with self._locks[number]:
                if self._filled[number]:
                    continue
                start = int(self._first_row[number])
                for name, values in self._reader.read(number).items():
                    target = self.rows[name][start : start + len(values)]
                    if target.is_cpu:
                        target.numpy()[:] = carried(values)
                    else:
                        target.copy_(torch.from_numpy(carried(values).copy()))
                self._filled[number] = True


@dataclass(frozen=True)
class _Due:
    """A window of a shard, and the row of the shard at which it is first needed."""

    position: int
    shard: int
    window: int


class Windows:
    """Hands out the windows of several shards, in the order of need, while later ones are being decoded."""

    def __init__(
        self,
        reader: Reader,
        cache: Cache | None,
        shards: dict[int, Shard],
        start: int,
        *,
        ahead_bytes: int,
        threads: int,
        pin: bool = False,
    ) -> None:
        """`start` is the row of every shard at which reading begins; `pin` makes `empty` give pinned memory."""
        self._reader, self._cache, self._shards, self._ahead_bytes = reader, cache, shards, ahead_bytes
        self.row_bytes = reader.row_bytes
        due = []
        for number, shard in shards.items():
            first = shard.find(start)[0] if start < shard.rows else len(shard.windows)
            starts = shard.window_ends - shard.window_rows
            due += [_Due(int(starts[window]), number, window) for window in range(first, len(shard.windows))]
        self._due = sorted(due, key=lambda window: (window.position, window.shard))
        self._next = 0
        self._pin = pin
        self._waiting_bytes = 0
        self._futures: dict[tuple[int, int], Future[Window]] = {}
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="decode")

    def take(self, shard: int, window: int) -> Window:
        """The window, decoded. Every window is taken once, in the order of need."""
        while (shard, window) not in self._futures:
            self._launch()
        decoded = self._futures.pop((shard, window)).result()
        self._waiting_bytes -= self._bytes(shard, window)
        while self._next < len(self._due) and self._waiting_bytes < self._ahead_bytes:
            self._launch()
        return decoded

    def empty(self, shape: tuple[int, ...], row_numbers: bool) -> dict[str, Tensor]:
        """Tensors to gather rows into, of shape (*shape, *column.shape), where the rows are."""
        device = self._cache.device if self._cache else torch.device("cpu")
        dtypes = {
            column.name: (torch.from_numpy(carried(np.empty(0, column.dtype))).dtype, column.shape) for column in self._reader.columns
        }
        if row_numbers:
            dtypes[ROW_NUMBERS] = (torch.int64, ())
        pin = self._pin and device.type == "cpu"
        return {name: torch.empty((*shape, *inner), dtype=dtype, device=device, pin_memory=pin) for name, (dtype, inner) in dtypes.items()}

    def restored(self, gathered: dict[str, Tensor]) -> dict[str, Tensor]:
        """The tensors with the dtypes of their columns."""
        for column in self._reader.columns:
            if column.dtype == "uint16":
                gathered[column.name] = gathered[column.name].view(torch.uint16)
        return gathered

    def close(self) -> None:
        """Let running decodes end and drop the others."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _launch(self) -> None:
        due = self._due[self._next]
        self._next += 1
        self._waiting_bytes += self._bytes(due.shard, due.window)
        self._futures[due.shard, due.window] = self._pool.submit(self._decode, self._shards[due.shard], due.window)

    def _bytes(self, shard: int, window: int) -> int:
        return int(self._shards[shard].window_rows[window]) * self._reader.row_bytes

    def _decode(self, shard: Shard, window: int) -> Window:
        """Permuting a column of a window at a time stays in the processor's cache; a batch at a time would not."""
        permutation = shard.permutation(window)
        numbers = torch.from_numpy(shard.row_numbers(window)[permutation])
        if self._cache is not None:
            self._cache.fill(shard.windows[window].group)
            rows, index = self._cache.rows, numbers.to(self._cache.device)
        else:
            rows, index = self._laid_end_to_end(shard, window), torch.from_numpy(permutation)
        return Window({name: values.index_select(0, index) for name, values in rows.items()}, numbers)

    def _laid_end_to_end(self, shard: Shard, window: int) -> dict[str, Tensor]:
        pieces, rows = shard.windows[window], int(shard.window_rows[window])
        joined = {column.name: np.empty((rows, *column.shape), column.dtype) for column in self._reader.columns}
        end = 0
        for group, start, count in zip(*(values.tolist() for values in (pieces.group, pieces.start, pieces.rows)), strict=True):
            for name, values in self._reader.read(group).items():
                joined[name][end : end + count] = values[start : start + count]
            end += count
        return {name: torch.from_numpy(carried(values)) for name, values in joined.items()}
