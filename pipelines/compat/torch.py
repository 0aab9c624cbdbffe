"""Private names of torch."""

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm

from pipelines.compat import present

__all__ = ["BatchNorm", "scale"]

# Overridden in parallel.batch_norm.
present(BatchNorm, "_check_input_dim")


def scale(tensors: list[Tensor], factor: Tensor) -> None:
    """Multiply all tensors in place by a scalar tensor: on a GPU in a few kernels, where a loop would launch one per tensor."""
    torch._foreach_mul_(tensors, factor)
