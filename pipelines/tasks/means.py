"""Means over rows that declare `higher_is_better`, which `train.monitor` requires of a metric, and say when they are undefined."""

import torch
from torch import Tensor
from torchmetrics import MeanMetric

from pipelines.tasks.values import NO_ROWS


class Loss(MeanMetric):
    """A mean for which lower is better. NaN values are not skipped."""

    higher_is_better = False  # type: ignore[assignment]

    def __init__(self, nothing: str = "no row has a weight") -> None:
        """`nothing` is the reason that is given for a mean over nothing."""
        super().__init__(nan_strategy="disable")
        self._nothing = nothing

    def update(self, value: Tensor, weight: Tensor | None = None) -> None:  # type: ignore[override]
        """Add values, with weights of the same shape. MeanMetric of torchmetrics 1.9 sets all weights to 1 if it skips no NaN."""
        weight = torch.ones_like(value) if weight is None else weight
        value, weight = value.to(self.dtype), weight.to(self.dtype)
        self.mean_value += (value * weight).sum()
        self.weight += weight.sum()

    def undefined(self) -> str:
        return "" if self.weight else self._nothing


class Score(Loss):
    """A mean for which higher is better. NaN values are not skipped."""

    higher_is_better = True

    def __init__(self, nothing: str = NO_ROWS) -> None:
        super().__init__(nothing)
