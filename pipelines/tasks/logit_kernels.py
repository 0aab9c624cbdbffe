"""Kernels of `linear_cross_entropy` for GPUs, in Triton: each logit is read once in the forward pass, and read and written once in the
backward pass. One program goes through a token's logits, block by block in a fixed order, so a result has the same bits each time.

Import this module only where a GPU is used, or Triton's interpreter: triton is large.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096
"""Logits that a program holds at a time."""


@triton.jit
def _normalise(logits, targets, normalisers, chosen, stride, count, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """The largest logit and the sum of exponentials beside it are carried from block to block (Milakov and Gimelshein 2018, "Online
    normalizer calculation for softmax")."""
    token = tl.program_id(0).to(tl.int64)
    row = logits + token * stride
    largest = -float("inf")
    total = 0.0
    for start in range(0, count, block):
        places = start + tl.arange(0, block)
        values = tl.load(row + places, mask=places < count, other=-float("inf")).to(tl.float32)
        larger = tl.maximum(largest, tl.max(values, 0))
        total = total * tl.exp(largest - larger) + tl.sum(tl.exp(values - larger), 0)
        largest = larger
    target = tl.load(targets + token)
    value = tl.load(row + tl.maximum(target, 0), mask=target < count, other=float("nan")).to(tl.float32)  # no class has such a number
    tl.store(normalisers + token, largest + tl.log(total))
    tl.store(chosen + token, tl.where(target >= 0, value, 0.0))


@triton.jit
def _differentiate(logits, normalisers, targets, factors, stride, count, block: tl.constexpr):  # type: ignore[no-untyped-def]
    token = tl.program_id(0).to(tl.int64)
    places = tl.program_id(1) * block + tl.arange(0, block)
    row = logits + token * stride + places
    is_class = places < count
    values = tl.load(row, mask=is_class, other=-float("inf")).to(tl.float32)
    is_target = places == tl.load(targets + token)
    shares = tl.exp(values - tl.load(normalisers + token)) - tl.where(is_target, 1.0, 0.0)
    gradient = tl.where(is_class, shares * tl.load(factors + token), 0.0)
    tl.store(row, gradient.to(logits.dtype.element_ty), mask=places < stride)


class KernelMath:
    """As `LogitMath` says, by kernels. All tensors are contiguous."""

    def normalise(self, logits: Tensor, targets: Tensor, count: int) -> tuple[Tensor, Tensor]:
        normalisers = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
        chosen = torch.empty_like(normalisers)
        if len(logits):
            _normalise[(len(logits),)](logits, targets, normalisers, chosen, logits.stride(0), count, BLOCK)
        return normalisers, chosen

    def differentiate(self, logits: Tensor, normalisers: Tensor, targets: Tensor, factors: Tensor, count: int) -> None:
        if len(logits):
            grid = (len(logits), triton.cdiv(logits.stride(0), BLOCK))
            _differentiate[grid](logits, normalisers, targets, factors, logits.stride(0), count, BLOCK)
