"""Puts steps together: gathers rows from the shards' windows into tensors of several whole batches."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pipelines.loader.order import Epoch, Shard
from pipelines.loader.windows import ROW_NUMBERS, Window, Windows


@dataclass
class Chunk:
    """Consecutive steps' batches, end to end."""

    columns: dict[str, Tensor]
    """Of shape (steps · rows of a batch, *column.shape)."""
    steps: int
    copied: torch.cuda.Event | None = None
    """On a GPU: when the copy to it is complete."""

    def batches(self) -> Iterator[dict[str, Tensor]]:
        """Each step's batch: views of the chunk."""
        if self.copied is not None:
            stream = torch.cuda.current_stream()
            stream.wait_event(self.copied)
            for values in self.columns.values():
                values.record_stream(stream)  # or its memory could be given away before the step has read it
        split = {name: values.tensor_split(self.steps) for name, values in self.columns.items()}
        for step in range(self.steps):
            yield {name: batches[step] for name, batches in split.items()}


class _Cursor:
    """A shard's rows, in order, whatever windows they lie in."""

    def __init__(self, number: int, shard: Shard, windows: Windows, position: int) -> None:
        self._number, self._shard, self._windows = number, shard, windows
        self._window, self._place = shard.find(position) if position < shard.rows else (len(shard.windows), 0)
        self._held: Window | None = None

    def runs(self, rows: int) -> Iterator[tuple[Window, slice]]:
        """The next `rows` rows, as slices of windows."""
        while rows:
            if self._held is None:
                self._held = self._windows.take(self._number, self._window)
            count = min(rows, len(self._held.numbers) - self._place)
            yield self._held, slice(self._place, self._place + count)
            rows -= count
            self._place += count
            if self._place == len(self._held.numbers):
                self._held, self._window, self._place = None, self._window + 1, 0


def chunks(
    epoch: Epoch,
    shards: dict[int, Shard],
    windows: Windows,
    step: int,
    chunk_bytes: int,
    row_numbers: bool,
) -> Iterator[Chunk]:
    """The epoch's steps from `step` on, as many to a chunk as fit into `chunk_bytes`, one at least."""
    microbatch, full_steps = epoch.order.microbatch, epoch.order.full_steps(epoch.rows)
    cursors = {number: _Cursor(number, shard, windows, step * microbatch) for number, shard in shards.items()}
    steps_per_chunk = max(1, chunk_bytes // (len(shards) * microbatch * windows.row_bytes))
    for first in range(step, full_steps, steps_per_chunk):
        steps = min(steps_per_chunk, full_steps - first)
        yield _gather([(cursor, microbatch) for cursor in cursors.values()], steps, windows, row_numbers)
    if epoch.steps > full_steps and step <= full_steps:
        rest = [(cursor, shards[number].rows - full_steps * microbatch) for number, cursor in cursors.items()]
        yield _gather(rest, 1, windows, row_numbers)


def _gather(shares: list[tuple[_Cursor, int]], steps: int, windows: Windows, row_numbers: bool) -> Chunk:
    """`steps` batches with so many rows of every shard, shard after shard."""
    gathered = windows.empty((steps, sum(rows for _, rows in shares)), row_numbers)
    offset = 0
    for cursor, rows in shares:
        _fill({name: values[:, offset : offset + rows] for name, values in gathered.items()}, cursor, steps, rows)
        offset += rows
    return Chunk(windows.restored({name: values.flatten(0, 1) for name, values in gathered.items()}), steps)


def _fill(targets: dict[str, Tensor], cursor: _Cursor, steps: int, rows: int) -> None:
    """Copy a shard's next rows into targets of shape (steps, rows, *column.shape), whole steps at a time where it can be."""
    step, place = 0, 0
    for window, span in cursor.runs(steps * rows):
        sources = {**window.rows, ROW_NUMBERS: window.numbers} if ROW_NUMBERS in targets else window.rows
        at = span.start
        while at < span.stop:
            whole = (span.stop - at) // rows if place == 0 else 0
            count = whole * rows or min(rows - place, span.stop - at)
            for name, values in sources.items():
                run = values[at : at + count]
                if whole:
                    targets[name][step : step + whole] = run.view(whole, rows, *values.shape[1:])
                else:
                    targets[name][step, place : place + count] = run
            at += count
            step, place = divmod(step * rows + place + count, rows)
