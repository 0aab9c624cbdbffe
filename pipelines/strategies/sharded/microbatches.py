"""Divides the rows of a step into microbatches of one size, which a pipeline needs, and adds rows that do not count."""

from collections.abc import Iterator

import torch

from pipelines.tasks.base import Batch, row_count
from pipelines.train.passes import split


class Microbatches:
    """Microbatches of a constant number of rows. Those that a step lacks are copies of a row that has been there."""

    def __init__(self, count: int, most_rows: int) -> None:
        """`most_rows` is the greatest number of rows of a step."""
        self.count = count
        self.rows = -(-most_rows // count)
        self._spare: Batch = {}

    def divide_step(self, batch: Batch) -> Iterator[tuple[Batch, Batch]]:
        """Each microbatch, and its rows that count, which are the first ones and may be none."""
        self._look_at(batch)
        for number in range(self.count):
            counted = {name: values[number * self.rows : (number + 1) * self.rows] for name, values in batch.items()}
            yield self._filled(counted, self.rows), counted

    def divide_evenly(self, batch: Batch) -> list[Batch]:
        """As many microbatches of equally many rows as possible, and of one spare row where there are none."""
        self._look_at(batch)
        return [self._filled(part, max(1, row_count(part))) for part in split(batch, self.count)]

    def _look_at(self, batch: Batch) -> None:
        if row_count(batch):
            self._spare = {name: values[:1].clone() for name, values in batch.items()}
        elif not self._spare:
            self._spare = {name: values.new_zeros(1, *values.shape[1:]) for name, values in batch.items()}

    def _filled(self, part: Batch, rows: int) -> Batch:
        missing = rows - row_count(part)
        if not missing:
            return part
        return {name: torch.cat([values, self._spare[name].expand(missing, *values.shape[1:])]) for name, values in part.items()}
