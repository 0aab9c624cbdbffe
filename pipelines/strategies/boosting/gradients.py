"""Each row's gradient and curvature of the loss, on a grid on which sums over rows are exact.

Histograms add millions of gradients, in an order that depends on threads and workers. Here every gradient is a multiple of a power of two
that has 23 bits below the largest of all workers. A float64 holds the sum of 2^29 of them without rounding, in any order.
"""

from math import frexp

import torch
import torch.distributed as dist
from torch import Tensor

from pipelines.tasks.data import Batch
from pipelines.tasks.supervised import Supervised
from pipelines.train.reduce.waits import waits_for_workers

MOST_ROWS = 2**29
_GRID_BITS = 23
_LEAST_CURVATURE = 1e-6
"""Least curvature as a share of the row's weight, for losses that are flat or concave somewhere."""
_BIAS_STEPS = 50


def gradients(task: Supervised, scores: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradient and curvature of the loss by each output, float64 of shape (rows, outputs); the weighted losses and the weights of the
    rows, shape (rows,)."""
    scores = scores.detach().requires_grad_()
    losses, row_weights = task.row_losses(scores, batch)
    weights = torch.ones_like(losses) if row_weights is None else row_weights
    losses = losses * weights
    (gradient,) = torch.autograd.grad(losses.sum(), scores, create_graph=True)
    curvature = torch.stack([_second(gradient[:, output], scores, output) for output in range(scores.shape[1])], 1)
    least = _LEAST_CURVATURE * weights[:, None]
    is_flat = (curvature == 0).all()
    return gradient.detach(), weights[:, None].expand_as(curvature) if is_flat else curvature.maximum(least), losses.detach(), weights


def _second(gradient: Tensor, scores: Tensor, output: int) -> Tensor:
    if not gradient.requires_grad:
        return torch.zeros_like(gradient)
    return torch.autograd.grad(gradient.sum(), scores, retain_graph=True)[0][:, output]


def to_grid(values: Tensor) -> Tensor:
    """The values, rounded to the grid. Collective: the grid is that of the largest value of all workers."""
    largest = values.abs().max().double() if values.numel() else torch.zeros((), dtype=torch.float64)
    _reduce(largest, dist.ReduceOp.MAX)
    exponent = frexp(float(largest))[1]
    spacing = 2.0 ** (exponent - _GRID_BITS)
    return (values.double() / spacing).round() * spacing


def exact_sum(values: Tensor) -> Tensor:
    """The sum over the rows of all workers, shape (…) from (rows, …): the same bits for any number of workers. Collective."""
    total = to_grid(values).sum(0)
    _reduce(total, dist.ReduceOp.SUM)
    return total


def best_bias(task: Supervised, batch: Batch, outputs: int) -> Tensor:
    """The constant output with the least loss, found by Newton's method: float64 of shape (outputs,). Collective."""
    bias = torch.zeros(outputs, dtype=torch.float64)
    rows = len(next(iter(batch.values())))
    for _ in range(_BIAS_STEPS):
        gradient, curvature, _, _ = gradients(task, bias.repeat(rows, 1), batch)
        bias = bias - exact_sum(gradient) / exact_sum(curvature)
    return bias


@waits_for_workers
def _reduce(values: Tensor, operation: dist.ReduceOp.RedOpType) -> None:
    if dist.is_initialized():
        dist.all_reduce(values, operation)
