"""Columns of one dtype and shape, stacked: they are gathered, copied and cut into batches together."""

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from math import prod
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from pipelines.dataset.schema import TensorColumn

ALIGNMENT = 64
HUGE_PAGES_BYTES = 4 * 2**20
"""From this size on NumPy asks for pages of 2 MiB: one fault at the first touch instead of 512."""
WIDE_BYTES = 512
"""A value from this size on is copied once, straight to its place in a batch. Narrower ones are permuted a window at a time
first, column by column, which stays in the processor's cache."""
ROW_NUMBERS = "row_number"
"""Name under which a batch carries its rows' numbers within the split, on request."""


@dataclass(frozen=True)
class Block:
    """What a tensor of shape (len(names), rows, *shape) holds."""

    names: tuple[str, ...]
    dtype: torch.dtype
    shape: tuple[int, ...]
    carried: torch.dtype
    """As which its bytes are moved: torch gathers no uint16."""

    @property
    def is_wide(self) -> bool:
        return prod(self.shape) * self.dtype.itemsize >= WIDE_BYTES

    def bytes_of(self, rows: int) -> int:
        """Of so many rows, up to where the next block may begin."""
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
    """Lends memory, and lends it again once no tensor refers to it any more. Safe to share between threads.

    The first touch of a page costs more than what is done with it: on one virtual machine copying 39 narrow columns into
    fresh memory took 68 ns a row, and 5 ns into memory that had been used before.
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
            if held is None or len(held) < size:  # one that is too small makes room for a larger one
                held = np.empty(HUGE_PAGES_BYTES if 3 * HUGE_PAGES_BYTES // 4 <= size < HUGE_PAGES_BYTES else size, np.uint8)
        lent = held[:size]
        weakref.finalize(lent, self._free.append, held).atexit = False
        return lent


def allocate(blocks: list[Block], rows: int, device: torch.device, pin: bool = False) -> list[Tensor]:
    """The same from torch, which itself keeps and lends again what is pinned or lies on a GPU."""
    return [torch.empty((len(block.names), rows, *block.shape), dtype=block.carried, device=device, pin_memory=pin) for block in blocks]
