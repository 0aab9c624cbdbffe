"""Decodes the windows of an epoch in threads, ahead of their use, within a limit on memory."""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from pipelines.data.loader.blocks import NUMBERS, Block, Buffers, allocate, column_blocks
from pipelines.data.loader.openmp import limit_openmp_threads
from pipelines.data.loader.order import RowRuns, Shard
from pipelines.data.loader.reader import Reader

LANES_BYTES = 2**18
"""Of columns that are permuted together, unless one column has more: they stay in the CPU's cache."""


@dataclass(frozen=True)
class Window:
    """A window's rows: for each block a tensor of shape (columns, rows, *shape)."""

    permuted: list[Tensor]
    """Narrow blocks, in the order of visits."""
    wide: list[Tensor]
    """Wide blocks, in stored order."""
    index: Tensor
    """The order of visits to the rows of wide blocks."""


class Memory:
    """Memory for windows and chunks, kept from epoch to epoch; and the whole split if it fits into the cache."""

    def __init__(self, reader: Reader, row_numbers: bool, device: torch.device, cached: bool) -> None:
        blocks = column_blocks(column for column in reader.columns if column.role != "carried")
        self.narrow, self.wide = [block for block in blocks if not block.is_wide], [block for block in blocks if block.is_wide]
        self.row_numbers = row_numbers
        self._permuted = [*self.narrow, NUMBERS] if row_numbers else self.narrow
        self.blocks = [*self._permuted, *self.wide]
        """Blocks of chunks: those that windows permute, then the others."""
        self.row_bytes = reader.row_bytes
        on_gpu = device.type == "cuda" and cached and reader.decoded_bytes <= torch.cuda.mem_get_info(device)[0] // 2
        self.device = device if on_gpu else torch.device("cpu")
        """Device of windows and chunks: the GPU if its free memory is twice the split's size, since the model needs the rest."""
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        """The GPU's stream for gathers and copies, which wait for no step there."""
        self._pin = device.type == "cuda" and not on_gpu
        self._windows, self._chunks, self._lanes, self._wide_windows = Buffers(), Buffers(), Buffers(), Buffers()
        with torch.cuda.stream(self.stream) if self.stream is not None else nullcontext():  # its memory never moves to another stream
            self.cache = Cache(reader, [*self.narrow, *self.wide], self.device) if cached else None

    def prepare_thread(self) -> None:
        """Make the calling thread's work on the GPU go to `stream`."""
        limit_openmp_threads()
        if self.stream is not None:
            torch.cuda.set_stream(self.stream)  # of this thread alone

    def window(self, rows: int) -> list[Tensor]:
        """Tensors for the permuted blocks."""
        return self._windows.empty(self._permuted, rows) if self.device.type == "cpu" else allocate(self._permuted, rows, self.device)

    def chunk(self, rows: int) -> list[Tensor]:
        if self._pin or self.device.type == "cuda":
            return allocate(self.blocks, rows, self.device, self._pin)
        return self._chunks.empty(self.blocks, rows)

    def wide_window(self, rows: int) -> list[Tensor]:
        """Tensors for the other blocks."""
        return self._wide_windows.empty(self.wide, rows)

    def lanes(self, block: Block, rows: int) -> Tensor:
        """A tensor for columns of a block, shape (columns, rows, *shape)."""
        return self._lanes.empty([block], rows)[0]


class Cache:
    """A cache of the whole split; each row group is decoded at its first use."""

    def __init__(self, reader: Reader, blocks: list[Block], device: torch.device) -> None:
        self._reader, self._blocks, self._is_on_host = reader, blocks, device.type == "cpu"
        rows = int(reader.group_rows.sum())
        self.rows = Buffers().empty(blocks, rows) if device.type == "cpu" else allocate(blocks, rows, device)
        self._first_row = np.cumsum(reader.group_rows) - reader.group_rows
        self._filled = np.zeros(len(reader.groups), bool)
        self._locks = [Lock() for _ in reader.groups]

    def fill(self, groups: np.ndarray) -> None:
        for number in np.unique(groups).tolist():
            with self._locks[number]:
                if not self._filled[number]:
                    start, rows = int(self._first_row[number]), int(self._reader.group_rows[number])
                    self._place(self._reader.read_blocks(number, self._blocks), start, rows)
                    self._filled[number] = True

    def _place(self, stacks: list[np.ndarray], start: int, rows: int) -> None:
        for target, stack in zip(self.rows, stacks, strict=True):
            if self._is_on_host:
                lay(stack, target, start)
            else:
                target[:, start : start + rows] = torch.from_numpy(stack.copy()).view(target.dtype)  # one copy to the GPU per block


def lay(stack: np.ndarray, target: Tensor, at: int) -> None:
    """Copy a block's decoded columns, of shape (columns, rows, *shape), to its rows from `at` on."""
    array = target.numpy()
    array[:, at : at + stack.shape[1]] = stack.view(array.dtype)


class Windows:
    """Yields the windows of several shards in the order of use, while threads decode later ones."""

    def __init__(self, reader: Reader, memory: Memory, shards: dict[int, Shard], start: int, *, ahead_bytes: int, threads: int) -> None:
        """`start` is the row of every shard at which reading begins."""
        self._reader, self._memory, self._shards, self._ahead_bytes = reader, memory, shards, ahead_bytes
        self.row_bytes = reader.row_bytes
        self.blocks, self.for_chunk = memory.blocks, memory.chunk
        due = []
        for number, shard in shards.items():
            first = shard.find(start)[0] if start < shard.rows else len(shard.windows)
            starts = shard.window_ends - shard.window_rows
            due += [(int(starts[window]), number, window) for window in range(first, len(shard.windows))]
        self._due = deque(sorted(due))
        """The row of a shard that needs a window first, the shard, and the window."""
        self._waiting_bytes = 0
        self._futures: dict[tuple[int, int], Future[Window]] = {}
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="decode", initializer=memory.prepare_thread)

    def take(self, shard: int, window: int) -> Window:
        """The decoded window. Every window is taken once, in the order of use."""
        while (shard, window) not in self._futures:
            self._launch()
        self._launch_ahead()  # not only after it was decoded: at an epoch's start the other threads would wait for the first
        decoded = self._futures.pop((shard, window)).result()
        self._waiting_bytes -= self._bytes(shard, window)
        self._launch_ahead()
        return decoded

    def close(self) -> None:
        """Let running decodes end and drop the others."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _launch_ahead(self) -> None:
        while self._due and self._waiting_bytes < self._ahead_bytes:
            self._launch()

    def _launch(self) -> None:
        _, shard, window = self._due.popleft()
        self._waiting_bytes += self._bytes(shard, window)
        self._futures[shard, window] = self._pool.submit(self._decode, self._shards[shard], window)

    def _bytes(self, shard: int, window: int) -> int:
        return int(self._shards[shard].window_rows[window]) * self._reader.row_bytes

    def _decode(self, shard: Shard, window: int) -> Window:
        memory, rows, index = self._memory, int(shard.window_rows[window]), shard.permutation(window)
        permuted = memory.window(rows)
        if memory.cache is not None or memory.row_numbers:
            numbers = shard.row_numbers(window)[index]
        if memory.row_numbers:
            permuted[-1][0] = torch.from_numpy(numbers)
        if memory.cache is None:
            narrow = np.int32 if rows < 2**31 else np.int64  # half as wide, it leaves the processor's cache to the rows
            at = torch.from_numpy(index.astype(narrow))
            wide = self._permute(shard.windows[window], at, permuted)
        else:
            at = torch.from_numpy(numbers).to(memory.device)
            memory.cache.fill(shard.windows[window].group)
            wide = memory.cache.rows[len(memory.narrow) :]
            for source, target in zip(memory.cache.rows, permuted[: len(memory.narrow)], strict=False):
                torch.index_select(source, 1, at, out=target)  # one call, whatever the number of columns
        return Window(permuted, wide, at)

    def _permute(self, runs: RowRuns, at: Tensor, permuted: list[Tensor]) -> list[Tensor]:
        """Decode the runs: narrow columns into `permuted`, in the order `at`, and wide ones in stored order into the result.

        As many columns as stay in the CPU's cache are concatenated and then permuted together. All of them at once take half as long
        again where windows are large; one by one, they take longer where windows are small, and threads wait for each other.
        """
        memory, rows, end = self._memory, len(at), 0
        wide, narrow = memory.wide_window(rows), []
        for group, start, count in zip(*(values.tolist() for values in (runs.group, runs.start, runs.rows)), strict=True):
            stacks = [stack[:, start : start + count] for stack in self._reader.read_blocks(group, [*memory.narrow, *memory.wide])]
            narrow.append(stacks[: len(memory.narrow)])
            for stack, target in zip(stacks[len(memory.narrow) :], wide, strict=True):
                lay(stack, target, end)
            end += count
        for block, target, *stacks in zip(memory.narrow, permuted, *narrow, strict=False):
            for columns, part in block.split(LANES_BYTES, rows):
                lanes = memory.lanes(part, rows)
                array = lanes.numpy()
                np.concatenate([stack[columns].view(array.dtype) for stack in stacks], axis=1, out=array)
                torch.index_select(lanes, 1, at, out=target[columns])
        return wide
