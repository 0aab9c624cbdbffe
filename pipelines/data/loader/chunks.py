"""Assembles batches: copies rows from the shards' windows into tensors of several whole batches."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pipelines.data.loader.blocks import Block
from pipelines.data.loader.order import Epoch, Shard
from pipelines.data.loader.windows import Window, Windows


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
    """The epoch's steps from `step` on, in chunks of as many steps as fit into `chunk_bytes`, at least one.

    The first chunks are smaller, so that the first batch does not wait for later ones.
    """
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


class Transfer:
    """A callable that copies a chunk from the host to `device` in a stream. Without one, on the CPU, it returns the chunk itself."""

    def __init__(self, device: torch.device, stream: torch.cuda.Stream | None) -> None:
        """`stream` is also the one in which chunks are gathered that are on the device already."""
        self._device, self._stream = device, stream

    def __call__(self, chunk: Chunk) -> Chunk:
        if self._stream is None:
            return chunk
        with torch.cuda.stream(self._stream):
            values = [block.to(self._device, non_blocking=True) for block in chunk.values]
            return Chunk(chunk.blocks, values, self._stream.record_event())
