"""What is needed of torch's own names."""

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm

from pipelines.compat import present

__all__ = ["BatchNorm", "scale"]

# Overridden in parallel.batch_norm.
present(BatchNorm, "_check_input_dim")


def scale(tensors: list[Tensor], factor: Tensor) -> None:
    """Multiply all tensors in place by one of no dimensions: in a few kernels on a GPU, where a loop takes one for each."""
    torch._foreach_mul_(tensors, factor)
