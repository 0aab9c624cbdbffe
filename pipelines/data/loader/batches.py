"""Assembles batches: decodes the windows of an epoch in threads, ahead of their use and within a limit on memory, and copies their rows
into tensors of several whole batches."""

from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from pipelines.data.loader.blocks import NUMBERS, Block, Buffers, allocate, column_blocks
from pipelines.data.loader.order import Epoch, RowRuns, Shard
from pipelines.data.loader.pace import Pace
from pipelines.data.loader.producer import limit_openmp_threads
from pipelines.data.loader.reader import Reader

CACHE_LOCKS = 256
"""Locks of the cache's row groups, of which several share one."""


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

    def __init__(self, reader: Reader, row_numbers: bool, device: torch.device, cached: bool, threads: int = 1) -> None:
        blocks = column_blocks(column for column in reader.columns if column.role != "carried")
        self.narrow, self.wide = [block for block in blocks if not block.is_wide], [block for block in blocks if block.is_wide]
        self.decoded = [*self.narrow, *self.wide]
        """Blocks that are read, of which `blocks` has all but row numbers."""
        self.row_numbers = row_numbers
        self._permuted = [*self.narrow, NUMBERS] if row_numbers else self.narrow
        self.blocks = [*self._permuted, *self.wide]
        """Blocks of chunks: those that windows permute, then the others."""
        self.row_bytes = reader.row_bytes
        self.pace = Pace(threads)
        on_gpu = device.type == "cuda" and cached and reader.decoded_bytes <= torch.cuda.mem_get_info(device)[0] // 2
        self.device = device if on_gpu else torch.device("cpu")
        """Device of windows and chunks: the GPU if its free memory is twice the split's size, since the model needs the rest."""
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        """The GPU's stream for gathers and copies, which wait for no step there."""
        self._pin = device.type == "cuda" and not on_gpu
        self.narrow_windows, self.wide_windows = Buffers(), Buffers()
        self._windows, self._chunks = Buffers(), Buffers()
        with torch.cuda.stream(self.stream) if self.stream is not None else nullcontext():  # its memory never moves to another stream
            self.cache = Cache(reader, self.decoded, self.device) if cached else None

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


class Cache:
    """A cache of the whole split; each row group is decoded at its first use."""

    def __init__(self, reader: Reader, blocks: list[Block], device: torch.device) -> None:
        self._reader, self._blocks, self._is_on_host = reader, blocks, device.type == "cpu"
        rows = int(reader.group_rows.sum())
        self.rows = Buffers().empty(blocks, rows) if device.type == "cpu" else allocate(blocks, rows, device)
        self._first_row = np.cumsum(reader.group_rows) - reader.group_rows
        self._filled = np.zeros(len(reader.groups), bool)
        self._locks = [Lock() for _ in range(CACHE_LOCKS)]

    def fill(self, groups: np.ndarray) -> None:
        for number in np.unique(groups).tolist():
            with self._locks[number % CACHE_LOCKS]:
                if not self._filled[number]:
                    start, rows = int(self._first_row[number]), int(self._reader.group_rows[number])
                    self._place(self._reader.read_blocks(number, self._blocks), start, rows)
                    self._filled[number] = True

    def _place(self, arrays: list[np.ndarray], start: int, rows: int) -> None:
        if self._is_on_host:
            lay(arrays, self.rows, slice(0, rows), start)
        else:
            staged = Buffers().empty(self._blocks, rows)
            lay(arrays, staged, slice(0, rows), 0)
            for block, values in zip(self.rows, staged, strict=True):
                block[:, start : start + rows] = values


def lay(arrays: Sequence[np.ndarray], targets: Sequence[Tensor], rows: slice, at: int) -> None:
    """Copy rows of decoded blocks, of shape (columns, rows, *shape), into targets from row `at` on."""
    for values, target in zip(arrays, targets, strict=True):
        target_array = target.numpy()
        target_array[:, at : at + rows.stop - rows.start] = values[:, rows].view(target_array.dtype)


class Windows:
    """Yields the windows of several shards in the order of use, while threads decode later ones."""

    def __init__(self, reader: Reader, memory: Memory, shards: dict[int, Shard], start: int, *, ahead_bytes: int, threads: int) -> None:
        """`start` is the row of every shard at which reading begins."""
        self._reader, self._memory, self._shards, self._ahead_bytes = reader, memory, shards, ahead_bytes
        self.row_bytes = reader.row_bytes
        self.blocks, self.for_chunk = memory.blocks, memory.chunk
        due = [np.zeros((3, 0), np.int64)]
        for number, shard in shards.items():
            first = shard.find(start)[0] if start < shard.rows else len(shard.windows)
            numbers = np.arange(first, len(shard.windows))
            due.append(np.stack([numbers, np.full_like(numbers, number), (shard.window_ends - shard.window_rows)[first:]]))
        all_due = np.concatenate(due, axis=1)
        self._due = all_due[:2, np.lexsort(all_due)]
        """Windows, and their shards, in the order of the rows of a shard that need them first."""
        self._launched = 0
        self._waiting_bytes = 0
        self._begun, self._is_awaited, self._is_closed = 0, False, False
        self._futures: dict[tuple[int, int], Future[Window]] = {}
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="decode", initializer=memory.prepare_thread)

    def take(self, shard: int, window: int) -> Window:
        """The decoded window. Every window is taken once, in the order of use."""
        while (shard, window) not in self._futures:
            self._launch()
        self._launch_ahead()  # not only after it was decoded: at an epoch's start the other threads would wait for the first
        future = self._futures.pop((shard, window))
        self._is_awaited = True
        decoded = future.result()
        self._is_awaited = False
        self._waiting_bytes -= self._bytes(shard, window)
        self._launch_ahead()
        return decoded

    def close(self) -> None:
        """Let running decodes end and drop the others."""
        self._is_closed = True
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _launch_ahead(self) -> None:
        while self._launched < self._due.shape[1] and self._waiting_bytes < self._ahead_bytes:
            self._launch()

    def _launch(self) -> None:
        window, shard = self._due[:, self._launched].tolist()
        self._launched += 1
        self._waiting_bytes += self._bytes(shard, window)
        self._futures[shard, window] = self._pool.submit(self._decode_in_turn, self._shards[shard], window, self._bytes(shard, window))

    def _bytes(self, shard: int, window: int) -> int:
        return int(self._shards[shard].window_rows[window]) * self._reader.row_bytes

    def _decode_in_turn(self, shard: Shard, window: int, size: int) -> Window:
        with self._memory.pace.turn(size, lambda: self._is_awaited or self._begun < self._launched):
            if self._is_closed:
                raise CancelledError
            self._begun += 1
            return self._decode(shard, window)

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
                _gather_rows(source, at, target)
        return Window(permuted, wide, at)

    def _permute(self, runs: RowRuns, at: Tensor, permuted: list[Tensor]) -> list[Tensor]:
        """Decode the runs: narrow blocks into `permuted`, in the order `at`, and wide ones in stored order into the result."""
        memory, rows, end = self._memory, len(at), 0
        wide, narrow = memory.wide_windows.empty(memory.wide, rows), memory.narrow_windows.empty(memory.narrow, rows)
        for group, start, count in zip(*(values.tolist() for values in (runs.group, runs.start, runs.rows)), strict=True):
            lay(self._reader.read_blocks(group, memory.decoded), [*narrow, *wide], slice(start, start + count), end)
            end += count
        for values, target in zip(narrow, permuted, strict=False):
            _gather_rows(values, at, target)
        return wide


def _gather_rows(values: Tensor, at: Tensor, target: Tensor) -> None:
    """Put rows `at` of a block, of shape (columns, rows, *shape), into `target`: in one call, since threads that call often wait for each
    other."""
    if len(values) == 1:
        torch.index_select(values[0], 0, at, out=target[0])  # a fifth faster on a CPU
    else:
        torch.index_select(values, 1, at, out=target)


@dataclass
class Chunk:
    """Consecutive steps' batches."""

    blocks: list[Block]
    values: list[Tensor]
    """Of each block, shape (columns, steps, rows of a batch, *shape)."""
    copy_event: torch.cuda.Event | None = None
    """On a GPU: the event that marks the end of the copy."""

    def batches(self) -> Iterator[dict[str, Tensor]]:
        """Each step's batch: views of the chunk."""
        if self.copy_event is not None:
            stream = torch.cuda.current_stream()
            stream.wait_event(self.copy_event)
            for values in self.values:
                values.record_stream(stream)  # or its memory could be reused before the step has read it
        by_step = [values.view(block.dtype).unbind(1) for block, values in zip(self.blocks, self.values, strict=True)]
        names = [name for block in self.blocks for name in block.names]
        for step in zip(*by_step, strict=True):
            yield dict(zip(names, (column for values in step for column in values.unbind(0)), strict=True))

    def to(self, device: torch.device, stream: torch.cuda.Stream | None) -> "Chunk":
        """A copy on `device`, made in the stream in which the chunk was gathered; on the CPU, which has no stream, the chunk itself."""
        if stream is None:
            return self
        with torch.cuda.stream(stream):
            return Chunk(self.blocks, [block.to(device, non_blocking=True) for block in self.values], stream.record_event())


class _Cursor:
    """A shard's rows in order, across its windows."""

    def __init__(self, number: int, shard: Shard, windows: Windows, position: int) -> None:
        self._number, self._shard, self._windows = number, shard, windows
        self._window, self._place = shard.find(position) if position < shard.rows else (len(shard.windows), 0)
        self._current: Window | None = None

    def runs(self, rows: int) -> Iterator[tuple[Window, slice]]:
        """The next `rows` rows, as slices of windows."""
        while rows:
            if self._current is None:
                self._current = self._windows.take(self._number, self._window)
            in_window = int(self._shard.window_rows[self._window])
            count = min(rows, in_window - self._place)
            yield self._current, slice(self._place, self._place + count)
            rows -= count
            self._place += count
            if self._place == in_window:
                self._current, self._window, self._place = None, self._window + 1, 0


def chunks(epoch: Epoch, shards: dict[int, Shard], windows: Windows, step: int, chunk_bytes: int) -> Iterator[Chunk]:
    """The epoch's steps from `step` on, in chunks of as many steps as fit into `chunk_bytes`, at least one. The first chunks are smaller,
    so that the first batch does not wait for later ones."""
    microbatch, full_steps = epoch.order.microbatch, epoch.order.full_steps(epoch.rows)
    cursors = {number: _Cursor(number, shard, windows, step * microbatch) for number, shard in shards.items()}
    most_steps, steps = max(1, chunk_bytes // (len(shards) * microbatch * windows.row_bytes)), 1
    while step < full_steps:
        steps = min(steps, most_steps, full_steps - step)
        yield _gather([(cursor, microbatch) for cursor in cursors.values()], steps, windows)
        step, steps = step + steps, 2 * steps
    if epoch.steps > full_steps and step == full_steps:
        shares = [(cursor, shards[number].rows - full_steps * microbatch) for number, cursor in cursors.items()]
        yield _gather(shares, 1, windows)


def _gather(shares: list[tuple[_Cursor, int]], steps: int, windows: Windows) -> Chunk:
    """`steps` batches with so many rows of every shard, shard after shard."""
    rows = sum(share for _, share in shares)
    values = [flat.unflatten(1, (steps, rows)) for flat in windows.for_chunk(steps * rows)]
    offset = 0
    for cursor, share in shares:
        _fill([block[:, :, offset : offset + share] for block in values], cursor, steps, share)
        offset += share
    return Chunk(windows.blocks, values)


def _fill(targets: list[Tensor], cursor: _Cursor, steps: int, rows: int) -> None:
    """Copy a shard's next rows into targets of shape (columns, steps, rows, *shape), in whole steps where possible."""
    step, place = 0, 0
    for window, span in cursor.runs(steps * rows):
        at = span.start
        while at < span.stop:
            whole_steps = (span.stop - at) // rows if place == 0 else 0
            count = whole_steps * rows or min(rows - place, span.stop - at)
            _copy(
                window, slice(at, at + count), [target[:, step : step + max(whole_steps, 1), place : place + count] for target in targets]
            )
            at += count
            step, place = divmod(step * rows + place + count, rows)


def _copy(window: Window, span: slice, targets: list[Tensor]) -> None:
    """Copy the window's rows that are visited in `span` into targets of shape (columns, steps, rows, *shape)."""
    for target, values in zip(targets, window.permuted, strict=False):
        target.copy_(values[:, span].unflatten(1, target.shape[1:3]))
    for target, values in zip(targets[len(window.permuted) :], window.wide, strict=True):
        by_step = window.index[span].split(target.shape[2])
        for column, steps in zip(values.unbind(0), target.unbind(0), strict=True):
            for index, step in zip(by_step, steps.unbind(0), strict=True):
                torch.index_select(column, 0, index, out=step)
