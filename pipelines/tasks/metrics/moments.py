"""Count, mean and sum of squared distances from the mean, of parts and combined for the whole.

The mean of squares minus the square of the mean would be the same variance in exact arithmetic, but loses it to rounding if the mean
is large.
"""

import torch
from torch import Tensor


def moments(values: Tensor, dims: list[int]) -> Tensor:
    """Count, mean and sum of squared distances over these dimensions, float64 of shape (3, …); zeros if there are no values."""
    size = values.sum(dims)
    count = torch.full_like(size, values.numel() // max(size.numel(), 1), dtype=torch.float64)
    mean = (size.double() / count.clamp(min=1)).to(values.dtype)
    from_mean = values - _keep_dims(mean, values, dims)
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


def _keep_dims(reduced: Tensor, like: Tensor, dims: list[int]) -> Tensor:
    return reduced.view([1 if dim in dims else size for dim, size in enumerate(like.shape)])
