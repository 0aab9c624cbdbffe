"""Seconds of a model's passes as they were measured, which take the place of a roofline's."""

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True)
class MeasuredPasses:
    """A model's passes on one worker of the hardware at hand, while as many workers compute as are to train. A pass takes a constant, for
    what does not depend on its rows, and a time for each of them."""

    constant_seconds: float
    row_seconds: float
    update_seconds: float
    """Of a step besides its passes, with all parameters on the worker: gradients are clipped, and the optimizer steps."""
    loader_rows_per_second: float = inf
    process_bytes: float = 0.0
    """Of a worker's process besides its model, where both are in the same memory: libraries, and rows that are read."""

    def pass_seconds(self, rows: float) -> float:
        """Seconds of a forward and backward pass of all layers."""
        return self.constant_seconds + self.row_seconds * rows
