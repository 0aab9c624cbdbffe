"""Means, ratios and errors as classes of torchmetrics, which declare `higher_is_better` and give the reason when they are undefined.

They accumulate the rows of one split in float64, and torch.distributed synchronises them between workers.
"""

import torch
from torch import Tensor
from torchmetrics import MeanMetric, Metric

from pipelines.tasks.metrics.table import NO_ROWS

NO_ITEM = "no item of the vocabulary comes next"


def moments(values: Tensor, dims: list[int]) -> Tensor:
    """Count, mean and sum of squared distances over these dimensions, float64 of shape (3, …); zeros if there are no values."""
    total = values.sum(dims)
    count = torch.full_like(total, values.numel() // max(total.numel(), 1), dtype=torch.float64)
    mean = (total.double() / count.clamp(min=1)).to(values.dtype)
    from_mean = values - mean.view([1 if dim in dims else size for dim, size in enumerate(values.shape)])
    off = from_mean.sum(dims).double() / count.clamp(min=1)  # the rounding error of the mean
    squares = from_mean.square().sum(dims).double() - count * off.square()
    return torch.stack([count, mean.double() + off, squares.clamp(min=0)])


def combine_moments(parts: Tensor) -> Tensor:
    """The moments of the whole, shape (3, …), from those of its parts, shape (parts, 3, …).

    Chan, Golub and LeVeque 1979, "Updating formulae and a pairwise algorithm for computing sample variances".
    """
    counts, means, squares = parts.unbind(1)
    count = counts.sum(0)
    largest = means.gather(0, counts.argmax(0, keepdim=True))  # so that parts without numbers do not change the result
    mean = largest[0] + (counts * (means - largest)).sum(0) / count.clamp(min=1)
    return torch.stack([count, mean, squares.sum(0) + (counts * (means - mean).square()).sum(0)])


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

    def compute(self) -> Tensor:
        return torch.full_like(self.mean_value, torch.nan) if self.missing_reason() else super().compute()

    def missing_reason(self) -> str:
        return "" if self.weight else self._nothing


class Score(Loss):
    """A mean for which higher is better. NaN values are not skipped."""

    higher_is_better = True

    def __init__(self, nothing: str = NO_ROWS) -> None:
        super().__init__(nothing)


class Determination(Metric):
    """R², the explained share of the variance. It replaces R2Score of torchmetrics, which fails for fewer than two rows, where this is
    NaN, as for equal values; and sums squares, which loses the variance of large numbers such as dates and identifiers to rounding."""

    full_state_update = False
    higher_is_better = True
    true: Tensor
    """Count, mean and sum of squared distances from the mean of the true values."""
    residual: Tensor
    lowest: Tensor
    highest: Tensor

    def __init__(self) -> None:
        super().__init__()
        # Whether the values are equal is a comparison: the squares are not exactly 0 if the mean is rounded.
        for name, reduction in (("lowest", "min"), ("highest", "max")):
            self.add_state(name, torch.tensor(torch.inf if reduction == "min" else -torch.inf, dtype=torch.float64), reduction)
        self.add_state("true", default=torch.zeros(3, dtype=torch.float64), dist_reduce_fx=combine_moments)
        self.add_state("residual", default=torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, predicted: Tensor, true: Tensor) -> None:
        self.true = combine_moments(torch.stack([self.true, moments(true, [0])]))
        self.residual += (predicted - true).square().sum()
        if len(true):
            self.lowest, self.highest = torch.minimum(self.lowest, true.min()), torch.maximum(self.highest, true.max())

    def compute(self) -> Tensor:
        return torch.full_like(self.residual, torch.nan) if self.missing_reason() else 1 - self.residual / self.true[2]

    def missing_reason(self) -> str:
        rows = int(self.true[0])
        if rows < 2:
            return "one row" if rows else NO_ROWS
        return "all values are equal" if self.lowest == self.highest else ""


class RelativeError(Loss):
    """The mean of |prediction − value| / |value|, MAPE; NaN if a value is 0, by which nothing can be divided. As values come from floats,
    one that is a millionth of the largest or less counts as 0."""

    smallest: Tensor
    largest: Tensor

    def __init__(self) -> None:
        super().__init__(NO_ROWS)
        self.add_state("smallest", torch.tensor(torch.inf, dtype=torch.float64), "min")
        self.add_state("largest", torch.tensor(0.0, dtype=torch.float64), "max")

    def update(self, predicted: Tensor, true: Tensor) -> None:  # type: ignore[override]
        size = true.abs()
        super().update((predicted - true).abs() / size)
        if len(true):
            self.smallest, self.largest = torch.minimum(self.smallest, size.min()), torch.maximum(self.largest, size.max())

    def missing_reason(self) -> str:
        has_zero = bool(self.smallest <= 1e-6 * self.largest)
        return super().missing_reason() or ("a value is 0, or a millionth of the largest or less" if has_zero else "")


class RankScore(Score):
    """A mean of ranking scores over all rows; NaN if no row has an item of the vocabulary, which could be ranked."""

    known_rows: Tensor

    def __init__(self) -> None:
        super().__init__(NO_ITEM)
        self.add_state("known_rows", default=torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, gains: Tensor, is_known: Tensor) -> None:  # type: ignore[override]
        """`is_known` says which rows have an item of the vocabulary; others have the score 0."""
        super().update(gains)
        self.known_rows += is_known.sum()

    def missing_reason(self) -> str:
        return "" if self.known_rows else NO_ITEM


class Ratio(Metric):
    """Ratio of two sums, float64; NaN without units."""

    full_state_update = False
    higher_is_better = False
    total: Tensor
    units: Tensor

    def __init__(self, nothing: str = "no token to predict") -> None:
        """`nothing` is the reason that is given for a ratio to nothing."""
        super().__init__()
        self._nothing = nothing
        for name in ("total", "units"):
            self.add_state(name, default=torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, total: Tensor, units: Tensor) -> None:
        self.total += total
        self.units += units

    def compute(self) -> Tensor:
        return self.total / self.units

    def missing_reason(self) -> str:
        return "" if self.units else self._nothing


class Perplexity(Ratio):
    """Exponential of the nats per token."""

    def compute(self) -> Tensor:
        return super().compute().exp()
