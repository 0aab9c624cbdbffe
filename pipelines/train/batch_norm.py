"""Batch norm over the rows of all workers. torch's own is for GPUs only; this one serves where there is none."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def synchronised(model: nn.Module, device: torch.device) -> nn.Module:
    """The model with every batch norm normalising by the rows of all workers; names and values stay."""
    if device.type == "cuda":
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.__class__ = _Synchronised
    return model


class _Synchronised(_BatchNorm):
    """A batch norm whose mean and variance are those of all workers' rows; a worker may have none."""

    def _check_input_dim(self, input: Tensor) -> None:
        pass

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        dims = [dim for dim in range(input.ndim) if dim != 1]
        own = torch.cat([input.sum(dims), input.square().sum(dims), input.new_full((1,), input.numel() / input.shape[1])])
        sums: Tensor = _SumOverWorkers.apply(own)
        count = sums[-1].clamp(min=1)
        mean, square = (sums[:-1] / count).chunk(2)
        variance = (square - mean.square()).clamp(min=0)
        self._remember(mean.detach(), (variance * (count / (count - 1).clamp(min=1))).detach())
        shape = [-1 if dim == 1 else 1 for dim in range(input.ndim)]
        normal = (input - mean.view(shape)) * torch.rsqrt(variance + self.eps).view(shape)
        return normal * self.weight.view(shape) + self.bias.view(shape) if self.affine else normal

    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            self.num_batches_tracked += 1
            share = self.momentum if self.momentum is not None else 1 / float(self.num_batches_tracked)
            self.running_mean.lerp_(mean, share)
            self.running_var.lerp_(variance, share)


class _SumOverWorkers(torch.autograd.Function):
    """A sum over all workers whose gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        values = values.clone()
        dist.all_reduce(values)
        return values

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        gradient = gradient.contiguous().clone()
        dist.all_reduce(gradient)
        return gradient
