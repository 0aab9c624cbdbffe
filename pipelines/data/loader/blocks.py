"""Blocks of stacked columns of one dtype and shape, which are gathered, copied and cut into batches together."""

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
"""Values of at least this size are copied once, directly to their place in a batch. Narrower ones are first permuted within a window,
column by column, which stays in the CPU's cache."""


@dataclass(frozen=True)
class Block:
    """Describes a tensor of shape (len(names), rows, *shape)."""

    names: tuple[str, ...]
    dtype: torch.dtype
    shape: tuple[int, ...]
    carried: torch.dtype
    """The dtype for moving its bytes, since torch cannot gather uint16."""

    @property
    def is_wide(self) -> bool:
        return prod(self.shape) * self.dtype.itemsize >= WIDE_BYTES

    def bytes_of(self, rows: int) -> int:
        """Bytes of `rows` rows, rounded up to the alignment of the next block."""
        return -(-len(self.names) * rows * prod(self.shape) * self.dtype.itemsize // ALIGNMENT) * ALIGNMENT


def blocks_of(columns: Iterable[TensorColumn]) -> list[Block]:
    def kind(column: TensorColumn) -> tuple[str, tuple[int, ...]]:
        return column.dtype, column.shape

    found = []
    for (dtype, shape), alike in groupby(sorted(columns, key=kind), kind):
        of_torch = getattr(torch, dtype)
        found.append(Block(tuple(column.name for column in alike), of_torch, shape, torch.int16 if dtype == "uint16" else of_torch))
    return found


NUMBERS = Block((ROW_NUMBERS,), torch.int64, (), torch.int64)


class Buffers:
    """A pool of memory, which is reused as soon as no tensor refers to it any more. Thread-safe.

    The first access to a page costs more than its use: on one virtual machine copying 39 narrow columns into
    fresh memory took 68 ns per row, and 5 ns into reused memory.
    """

    def __init__(self) -> None:
        self._free: list[np.ndarray] = []
        self._lock = Lock()

    def empty(self, blocks: list[Block], rows: int) -> list[Tensor]:
        """A tensor of shape (columns, rows, *shape) for each block."""
        lent = self.lend(max(ALIGNMENT, sum(block.bytes_of(rows) for block in blocks)))  # an empty array has no dtype to view as
        memory = torch.from_numpy(lent)  # tensors on this memory keep `lent`, and nothing else does
        tensors, at = [], 0
        for block in blocks:
            count = len(block.names) * rows * prod(block.shape) * block.carried.itemsize
            tensors.append(memory[at : at + count].view(block.carried).view(len(block.names), rows, *block.shape))
            at += block.bytes_of(rows)
        return tensors

    def lend(self, size: int) -> np.ndarray:
        """So many bytes, of shape (size,)."""
        with self._lock:
            fitting = [at for at, free in enumerate(self._free) if len(free) >= size]
            held = self._free.pop(fitting[0] if fitting else 0) if self._free else None
            if held is None or len(held) < size:  # free one that is too small before allocating a larger one
                held = np.empty(HUGE_PAGES_BYTES if 3 * HUGE_PAGES_BYTES // 4 <= size < HUGE_PAGES_BYTES else size, np.uint8)
        lent = held[:size]
        weakref.finalize(lent, self._free.append, held).atexit = False
        return lent


def allocate(blocks: list[Block], rows: int, device: torch.device, pin: bool = False) -> list[Tensor]:
    """The same from torch, whose allocators reuse pinned and GPU memory themselves."""
    return [torch.empty((len(block.names), rows, *block.shape), dtype=block.carried, device=device, pin_memory=pin) for block in blocks]
