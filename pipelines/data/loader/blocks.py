"""Blocks: scalar columns of one dtype, stacked, or a column of arrays, which are gathered, copied and cut into batches together."""

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from math import prod
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from pipelines.data.versions.schema import ROW_NUMBERS, TensorColumn

ALIGNMENT = 64
HUGE_PAGES_BYTES = 4 * 2**20
"""From this size on NumPy asks for pages of 2 MiB: one fault at the first touch instead of 512."""
WIDE_BYTES = 512
"""Values of at least this size are copied once, directly to their place in a batch. Narrower ones are first permuted within a window."""


@dataclass(frozen=True)
class Block:
    """Describes a tensor of shape (len(names), rows, *shape)."""

    names: tuple[str, ...]
    dtype: torch.dtype
    shape: tuple[int, ...]
    raw_dtype: torch.dtype
    """The dtype for moving its bytes, since torch cannot gather uint16."""

    @property
    def is_wide(self) -> bool:
        return prod(self.shape) * self.dtype.itemsize >= WIDE_BYTES

    def size_bytes(self, rows: int) -> int:
        """Bytes of `rows` rows, rounded up to the alignment of the next block."""
        return -(-len(self.names) * rows * prod(self.shape) * self.dtype.itemsize // ALIGNMENT) * ALIGNMENT


def column_blocks(columns: Iterable[TensorColumn]) -> list[Block]:
    """The blocks of columns: scalars of one dtype are a block, and any other column is one of its own."""

    def kind(column: TensorColumn) -> tuple[str, tuple[int, ...], str]:
        return column.dtype, column.shape, column.name if column.shape else ""

    blocks = []
    for (name, shape, *_), group in groupby(sorted(columns, key=kind), kind):
        dtype = getattr(torch, name)
        blocks.append(Block(tuple(column.name for column in group), dtype, shape, torch.int16 if name == "uint16" else dtype))
    return blocks


NUMBERS = Block((ROW_NUMBERS,), torch.int64, (), torch.int64)


class Buffers:
    """A pool of memory, which is reused as soon as no tensor refers to it any more. Thread-safe. The first access to a page costs more than
    its use: on one virtual machine copying 39 narrow columns into fresh memory took 68 ns per row, and 5 ns into reused memory."""

    def __init__(self) -> None:
        self._free: list[np.ndarray] = []
        self._lock = Lock()

    def empty(self, blocks: list[Block], rows: int) -> list[Tensor]:
        """A tensor of shape (columns, rows, *shape) for each block."""
        size = max(ALIGNMENT, sum(block.size_bytes(rows) for block in blocks))  # an empty array has no dtype to view as
        memory = torch.from_numpy(self.lend(size))  # nothing but the tensors on this memory keeps it
        tensors, start = [], 0
        for block in blocks:
            count = len(block.names) * rows * prod(block.shape) * block.raw_dtype.itemsize
            tensors.append(memory[start : start + count].view(block.raw_dtype).view(len(block.names), rows, *block.shape))
            start += block.size_bytes(rows)
        return tensors

    def lend(self, size: int) -> np.ndarray:
        """Lend memory of `size` bytes, uint8 of shape (size,)."""
        with self._lock:
            fitting = [number for number, free in enumerate(self._free) if len(free) >= size]
            buffer = self._free.pop(fitting[0] if fitting else 0) if self._free else None
            if buffer is None or len(buffer) < size:  # free one that is too small before allocating a larger one
                buffer = np.empty(HUGE_PAGES_BYTES if 3 * HUGE_PAGES_BYTES // 4 <= size < HUGE_PAGES_BYTES else size, np.uint8)
        view = buffer[:size]
        weakref.finalize(view, self._free.append, buffer).atexit = False
        return view


def allocate(blocks: list[Block], rows: int, device: torch.device, pin: bool = False) -> list[Tensor]:
    """Tensors as from `Buffers.empty`, by torch's allocators, which reuse pinned and GPU memory themselves."""
    return [torch.empty((len(block.names), rows, *block.shape), dtype=block.raw_dtype, device=device, pin_memory=pin) for block in blocks]
