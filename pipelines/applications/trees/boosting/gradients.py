"""Each row's gradient and curvature of the loss, on a grid on which sums over rows are exact.

Histograms add millions of gradients, in an order that depends on threads and workers. Here every gradient is a multiple of a power of two
that has 23 bits below the largest of all workers. A float64 holds the sum of 2^29 of them without rounding, in any order.
"""

from math import frexp
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from pipelines.tasks.data import Batch, row_count
from pipelines.tasks.supervised import Supervised
from pipelines.train.reduce.context import waits_for_workers

MOST_ROWS = 2**29
_GRID_BITS = 23
_LEAST_CURVATURE = 1e-6
"""Least curvature, as a share of the row's weight, for losses that are flat or concave somewhere."""
_BIAS_STEPS, _HALVINGS = 50, 20


class Gradients(NamedTuple):
    """Loss and derivatives of each row of a worker, weighted."""

    gradient: Tensor
    """float64 of shape (rows, outputs)."""
    curvature: Tensor
    """float64 of shape (rows, outputs): above 0, unless the row's weight is 0."""
    losses: Tensor
    """float64 of shape (rows,)."""
    weights: Tensor | None
    """float64 of shape (rows,); None if all are 1."""


def gradients(task: Supervised, scores: Tensor, batch: Batch) -> Gradients:
    """The derivatives of the loss by each output, the second without its sign. Of a loss without curvature, as of quantiles, it is the
    row's weight."""
    losses, weights = task.row_losses(scores, batch)
    gradient, curvature = task.target.derivatives(scores, batch[task.data.target.name])
    curvature = curvature.abs_().clamp_(min=_LEAST_CURVATURE) if task.target.is_curved else torch.ones_like(curvature)
    if weights is None:
        return Gradients(gradient, curvature, losses, None)
    return Gradients(gradient * weights[:, None], curvature * weights[:, None], losses * weights, weights)


def to_grids(*arrays: Tensor) -> list[Tensor]:
    """Each array rounded to a grid of its own, as float64; one of float64 in place. Collective: a grid is that of the largest value of all
    workers."""
    largest = torch.stack([_largest(values) for values in arrays])
    _reduce(largest, dist.ReduceOp.MAX)
    spacings = [2.0 ** (frexp(value)[1] - _GRID_BITS) for value in largest.tolist()]
    return [_round_to(spacing, values.double()) for values, spacing in zip(arrays, spacings, strict=True)]


def _largest(values: Tensor) -> Tensor:
    """The largest absolute value, as float64; 0 of no values."""
    if not values.numel():
        return torch.zeros((), dtype=torch.float64)
    least, most = torch.aminmax(values)
    return torch.maximum(-least, most).double()


def _round_to(spacing: float, values: Tensor) -> Tensor:
    """The nearest multiple of a power of two of each value. At 1.5 · 2^52 times the spacing, float64 holds no others: so adding it rounds,
    and subtracting it does not."""
    shift = 1.5 * 2.0**52 * spacing
    return values.add_(shift).sub_(shift)


def sum_exactly(on_grid: Tensor) -> Tensor:
    """The sum over the rows of all workers, shape (…) from (rows, …): the same bits for any number of workers. Collective."""
    total = on_grid.sum(0)
    _reduce(total, dist.ReduceOp.SUM)
    return total


def best_bias(task: Supervised, batch: Batch, outputs: int) -> Tensor:
    """The constant output with the least loss: float64 of shape (outputs,). Collective.

    Newton's method with the diagonal of the second derivatives; a step that does not lower the loss is halved.
    """
    bias, rows = torch.zeros(outputs, dtype=torch.float64), row_count(batch)
    loss = _loss_of_constant(task, batch, bias)
    for _ in range(_BIAS_STEPS):
        derivatives = gradients(task, bias.repeat(rows, 1), batch)
        gradient, curvature = map(sum_exactly, to_grids(derivatives.gradient, derivatives.curvature))
        step = gradient / curvature
        for _ in range(_HALVINGS):
            lower = _loss_of_constant(task, batch, bias - step)
            if lower < loss:
                break
            step = step / 2
        else:
            return bias
        bias, loss = bias - step, lower
    return bias


def _loss_of_constant(task: Supervised, batch: Batch, bias: Tensor) -> float:
    losses, weights = task.row_losses(bias.repeat(row_count(batch), 1), batch)
    return float(sum_exactly(*to_grids(losses if weights is None else losses * weights)))


@waits_for_workers
def _reduce(values: Tensor, operation: dist.ReduceOp.RedOpType) -> None:
    if dist.is_initialized():
        dist.all_reduce(values, operation)
