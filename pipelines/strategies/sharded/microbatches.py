"""Divides the rows of a step into microbatches of one size, which a pipeline needs, and adds rows that do not count."""

from collections.abc import Iterator

import torch

from pipelines.tasks.base import Batch, row_count
from pipelines.train.passes import split


class Microbatches:
    """Microbatches of a constant number of rows. Copies of an earlier row fill them up."""

    def __init__(self, count: int, largest_step: int) -> None:
        """`largest_step` is the greatest number of rows of a step."""
        self.count = count
        self.rows = -(-largest_step // count)
        self._spare_row: Batch = {}

    def divide_step(self, batch: Batch) -> Iterator[tuple[Batch, Batch]]:
        """Divide a step's rows. Yields each microbatch, and its rows that count: the first ones, perhaps none."""
        self._keep_spare_row(batch)
        for number in range(self.count):
            counted = {name: values[number * self.rows : (number + 1) * self.rows] for name, values in batch.items()}
            yield self._fill(counted, self.rows), counted

    def divide_evenly(self, batch: Batch) -> list[Batch]:
        """Divide rows into microbatches as equal as possible; one without rows has a spare row."""
        self._keep_spare_row(batch)
        return [self._fill(part, max(1, row_count(part))) for part in split(batch, self.count)]

    def _keep_spare_row(self, batch: Batch) -> None:
        if row_count(batch):
            self._spare_row = {name: values[:1].clone() for name, values in batch.items()}
        elif not self._spare_row:
            self._spare_row = {name: values.new_zeros(1, *values.shape[1:]) for name, values in batch.items()}

    def _fill(self, part: Batch, rows: int) -> Batch:
        missing = rows - row_count(part)
        if not missing:
            return part
        return {name: torch.cat([values, self._spare_row[name].expand(missing, *values.shape[1:])]) for name, values in part.items()}
