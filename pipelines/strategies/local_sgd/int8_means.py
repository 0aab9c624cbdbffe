"""Means over replicas that workers send as int8: at most a quarter of the bytes of fp32, and equal means for any number of workers.

A tensor of all replicas has one scale, its greatest absolute value on any replica divided by 127. So the replicas' int8 values
are added as integers, exactly and in any order. A replica adds its rounding error to the values it sends next: error feedback
(Seide et al., "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed Training of Speech DNNs",
Interspeech 2014; Karimireddy et al., "Error Feedback Fixes SignSGD and other Gradient Compression Schemes", ICML 2019).
"""

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from pipelines.train.reduce.transports import PointToPoint

LEVELS = 127
"""The greatest int8; its negative is used too, so that rounding is the same for both signs."""


class Int8Means:
    """The mean over all replicas of a list of tensors, each rounded to int8 with error feedback."""

    def __init__(self, like: Sequence[Tensor], blocks: Sequence[range], rank: int) -> None:
        """`blocks` holds every worker's replicas, and `like` tensors as each replica gives."""
        self._replicas, self._workers, self._rank = blocks[-1].stop, len(blocks), rank
        self._sizes = [tensor.numel() for tensor in like]
        self._partial_dtype = _sum_dtype(max(map(len, blocks)))
        self._transport = PointToPoint([1] * len(blocks), rank)
        self.errors = {number: [torch.zeros_like(tensor, dtype=torch.float32) for tensor in like] for number in blocks[rank]}
        """Rounding errors that are not sent yet, by the number of each replica of this worker."""

    @torch.no_grad()
    def mean(self, by_replica: Iterable[Sequence[Tensor]]) -> list[Tensor]:
        """The mean over all replicas; `by_replica` are the tensors of this worker's. Collective."""
        for errors, tensors in zip(self.errors.values(), by_replica, strict=True):
            for error, values in zip(errors, tensors, strict=True):
                error.add_(values)
        scales = self._common_scales()
        partial = torch.zeros(sum(self._sizes), dtype=self._partial_dtype, device=scales.device)
        for errors in self.errors.values():
            for error, scale, partial_sum in zip(errors, scales, partial.split(self._sizes), strict=True):
                rounded = quantise(error, scale)
                partial_sum.add_(rounded.flatten())
                error.sub_(rounded * scale)
        sums = self._sum(partial.cpu()).to(scales.device).split(self._sizes)
        return [(total * (scale / self._replicas)).view_as(error) for total, scale, error in zip(sums, scales, errors, strict=True)]

    def _common_scales(self) -> Tensor:
        """One scale per tensor, float32: infinite if a value is not finite, so that the mean is not finite either."""
        largest = torch.stack([torch.stack([_largest(error) for error in errors]) for errors in self.errors.values()]).amax(0)
        on_cpu = largest.nan_to_num(nan=torch.inf, posinf=torch.inf).cpu()
        if self._workers > 1:
            dist.all_reduce(on_cpu, dist.ReduceOp.MAX)
        return on_cpu.to(largest.device) / LEVELS

    def _sum(self, partial: Tensor) -> Tensor:
        """The sum of all workers' partial sums, in integers wide enough: a reduce-scatter and an all-gather. Two workers with one
        replica each send less if each sends all of its values."""
        dtype = _sum_dtype(self._replicas)
        if self._workers == 1:
            return partial.to(dtype)
        if self._workers * partial.itemsize < partial.itemsize + dtype.itemsize:
            by_worker = [torch.empty_like(partial) for _ in range(self._workers)]
            by_worker[self._rank] = partial
            self._transport.all_gather(by_worker)
            return torch.stack(by_worker).sum(0, dtype=dtype)
        padded = torch.nn.functional.pad(partial, (0, -len(partial) % self._workers))
        parts = padded.tensor_split(self._workers)
        received = self._transport.all_to_all([parts])
        sums = list(torch.empty_like(padded, dtype=dtype).tensor_split(self._workers))
        torch.sum(torch.stack([parts[self._rank], *(part for (part,) in received.values())]), 0, dtype=dtype, out=sums[self._rank])
        self._transport.all_gather(sums)
        return torch.cat(sums)[: len(partial)]


def quantise(values: Tensor, scale: Tensor) -> Tensor:
    """Round values to the nearest multiples of `scale`, ties to even, as int8."""
    levels = values / torch.where(scale > 0, scale, 1.0)
    return levels.nan_to_num().round().clamp(-LEVELS, LEVELS).to(torch.int8)


def _sum_dtype(replicas: int) -> torch.dtype:
    """The narrowest integers that hold a sum of `replicas` int8 values."""
    return next(dtype for dtype in (torch.int8, torch.int16, torch.int32) if replicas * LEVELS <= torch.iinfo(dtype).max)


def _largest(values: Tensor) -> Tensor:
    return values.abs().amax() if values.numel() else values.new_zeros(())
