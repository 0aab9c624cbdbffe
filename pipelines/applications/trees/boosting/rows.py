"""The rows of a worker, which it keeps in memory, and a loader whose steps are rounds."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from pipelines.data.loader import Loader, Order
from pipelines.data.loader.reader import Reader
from pipelines.data.versions.versions import Version
from pipelines.tasks.data import Batch

SAMPLE_ROWS = 200_000
"""Rows from which the intervals of numbers are made, the same on all workers."""


def add_missing_row(sample: np.ndarray, is_missing: Sequence[bool]) -> np.ndarray:
    """The sample, and one row more if some inputs may be missing, in which they are: LightGBM learns a side for NaN only of inputs of which
    its sample has one, and takes NaN for 0 elsewhere."""
    return np.concatenate([sample, np.where(is_missing, np.float32(np.nan), sample[:1])]) if any(is_missing) else sample


class TreeRounds(Loader):
    """A loader whose steps are rounds: it reads all rows once, and then only counts."""

    def __init__(self, version: Version, order: Order, owned_shards: range, rounds_per_epoch: int, threads: int) -> None:
        order = replace(order, shuffle=False, remainder="keep")
        super().__init__(version, "train", order, owned_shards, cache_bytes=0)
        self.steps_per_epoch, self.remainder_rows = rounds_per_epoch, 0
        self._version, self._threads = version, threads

    def __iter__(self) -> Iterator[Any]:
        """The numbers of the remaining rounds of the epoch. Leaving early keeps the position."""
        if self._step >= self.steps_per_epoch:
            self._epoch, self._step = self._epoch + 1, 0
        while self._step < self.steps_per_epoch:
            self._step += 1
            yield self._epoch * self.steps_per_epoch + self._step - 1
        self._epoch, self._step = self._epoch + 1, 0

    def read_ahead(self) -> None:
        """Nothing: the rows are in memory."""

    def read_rows(self) -> Iterator[Batch]:
        """All rows of the owned shards, on the CPU, a batch at a time: a text takes many times the memory of what trees see of it. Batches
        share memory."""
        with closing(Loader(self._version, "train", self.order, self.owned_shards, cache_bytes=0, threads=self._threads)) as loader:
            yield from loader

    def read_sample(self) -> Iterator[Batch]:
        """The first rows of the training split, at most SAMPLE_ROWS, or few more, a row group at a time; ETL has shuffled them."""
        reader, rows = Reader(self._version, "train"), 0
        for number in range(len(reader.groups)):
            yield {name: torch.from_numpy(values.copy()) for name, values in reader.read(number).items()}
            rows += int(reader.group_rows[number])
            if rows >= SAMPLE_ROWS:
                break
