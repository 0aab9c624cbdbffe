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

    def pass_seconds(self, rows: float) -> float:
        """Seconds of a forward and backward pass of all layers."""
        return self.constant_seconds + self.row_seconds * rows


def fit_passes(
    rows: tuple[int, int], seconds: tuple[float, float], update_seconds: float, loader_rows_per_second: float = inf
) -> MeasuredPasses:
    """The passes of which one of `rows[0]` rows and one of more, `rows[1]`, took these seconds. Where the longer one took less, noise is
    larger than what rows cost, and a pass takes the mean of both whatever its rows."""
    row_seconds = max(0.0, (seconds[1] - seconds[0]) / (rows[1] - rows[0]))
    constant = seconds[0] - row_seconds * rows[0] if row_seconds else sum(seconds) / 2
    if constant < 0:  # caches favour fewer rows
        row_seconds, constant = seconds[1] / rows[1], 0.0
    return MeasuredPasses(constant, row_seconds, max(0.0, update_seconds), loader_rows_per_second)
