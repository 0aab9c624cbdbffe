"""Cross entropy of a linear layer's outputs, as of the head of a language model: one function of the layer's input and its weight.

Logits are most of the memory of such a model. Between the passes they stay in the dtype of the products, and then become their own gradient
in place; with `chunk`, those of so many tokens exist at a time, and the backward pass computes them again. What is computed between the
products is in fp32: on a GPU by kernels of `logit_kernels`, which make no copy of logits. Every sum has a fixed order.

The peers: Liger's fused linear cross entropy (Hsu et al. 2024) computes gradients in the forward pass, and "Cut your losses" (Wijmans et
al. 2024) never writes logits, and leaves out gradients that bf16 would round away.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib import import_module
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipelines.runtime.compat.torch import constant_in_graphs
from pipelines.runtime.slower_ways import note_slower_way

PADDED_TO = 64
"""On a GPU, the number of logits of a token is a multiple of this, by weights of 0: its products need that to be fast."""


class HeadClasses:
    """All classes of a layer. A strategy whose workers divide them has `DividedClasses` of `strategies.sharded` instead."""

    def own(self, parameter: Tensor) -> Tensor:
        """The part of a weight or bias that belongs to this worker's classes, which are the first dimension."""
        return parameter

    def own_targets(self, targets: Tensor) -> Tensor:
        """The targets as numbers of this worker's classes; others are below 0."""
        return targets

    def merge(self, normalisers: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """The logarithms of the sums of exponentials, and the logits of targets, over all classes, given those of this worker's."""
        return normalisers, chosen

    def sum(self, gradient: Tensor) -> Tensor:
        """The gradient of the layer's input, given that of this worker's logits."""
        return gradient

    def gather(self, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The logits of all classes."""
        return functional.linear(hidden, weight, bias)


class Head(nn.Linear):
    """A linear layer to logits, which also computes their cross entropy."""

    def __init__(self, width: int, classes: int, bias: bool = True, chunk: int = 0) -> None:
        """`chunk` is the number of tokens whose logits exist at a time, 0 for all."""
        super().__init__(width, classes, bias)
        self.chunk = chunk
        self.classes = HeadClasses()

    def forward(self, hidden: Tensor, targets: Tensor | None = None) -> Tensor:
        """The logits, shape (…, classes); with `targets` of shape (tokens,) and `hidden` of shape (tokens, width), their cross entropy in
        nats, float32 of shape (tokens,)."""
        if targets is None:
            return self.classes.gather(hidden, self.weight, self.bias)
        return linear_cross_entropy(hidden, self.weight, targets, self.bias, self.chunk, self.classes)


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, targets: Tensor, bias: Tensor | None = None, chunk: int = 0, classes: HeadClasses | None = None
) -> Tensor:
    """The cross entropy in nats of logits `hidden` · `weight`ᵀ + `bias`, float32 of shape (tokens,).

    `hidden` has the shape (tokens, width), `weight` (classes, width), `targets` (tokens,) and numbers from 0 to classes − 1. The products
    are those of autocast if it is on. `hidden`, `weight` and `bias` have gradients, and no second derivatives.
    """
    if torch.compiler.is_exporting():  # into formats that know the operators of torch alone
        return functional.cross_entropy(functional.linear(hidden, weight, bias).float(), targets, reduction="none")
    device = hidden.device.type
    classes = classes or HeadClasses()
    weight, bias = classes.own(weight), None if bias is None else classes.own(bias)
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        hidden, weight, bias = hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    count = len(weight)
    if device == "cuda" and (missing := -count % PADDED_TO):
        weight = functional.pad(weight, (0, 0, 0, missing))
        bias = None if bias is None else functional.pad(bias, (0, missing))
    with _without_autocast(device):
        own_targets = classes.own_targets(targets).contiguous()
        return cast(Tensor, _LinearCrossEntropy.apply(hidden, weight, bias, own_targets, count, chunk, classes))


class LogitMath(Protocol):
    """A way to compute what lies between the products. Logits have the shape (tokens, classes and padding), and any dtype."""

    def normalise(self, logits: Tensor, targets: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The logarithm of the sum of exponentials of each token's first `count` logits, and the logit of its target, 0 without one: both
        float32 of shape (tokens,)."""

    def differentiate(self, logits: Tensor, normalisers: Tensor, targets: Tensor, factors: Tensor, count: int) -> None:
        """Replace the logits by the gradient of cross entropies, each times its factor; that of padding is 0."""


class PlainMath:
    """By operators of torch."""

    def normalise(self, logits: Tensor, targets: Tensor, count: int) -> tuple[Tensor, Tensor]:
        scores = logits[:, :count].float()
        chosen = scores.gather(1, targets.clamp(min=0)[:, None])[:, 0]
        return scores.logsumexp(1), torch.where(targets >= 0, chosen, 0.0)

    def differentiate(self, logits: Tensor, normalisers: Tensor, targets: Tensor, factors: Tensor, count: int) -> None:
        gradient = logits[:, :count].float()  # in fp32 the logits themselves
        gradient.sub_(normalisers[:, None]).exp_().mul_(factors[:, None])
        places = targets.clamp(min=0)[:, None]
        # Not `scatter_add_`, which CUDA does in no fixed order: a token has one target, so that nothing is added twice.
        chosen = gradient.gather(1, places) - torch.where(targets >= 0, factors, 0.0)[:, None]
        gradient.scatter_(1, places, chosen)
        if logits.dtype != torch.float32:
            logits[:, :count] = gradient
        logits[:, count:] = 0


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, count: int, chunk: int, classes: HeadClasses
    ) -> Tensor:
        math, size = logit_math(hidden.device.type, hidden.dtype), chunk or max(1, len(hidden))
        logits = hidden.new_empty(0)
        normalisers, chosen = hidden.new_empty(len(hidden), dtype=torch.float32), hidden.new_empty(len(hidden), dtype=torch.float32)
        for tokens in _chunks(len(hidden), size):
            logits = functional.linear(hidden[tokens], weight, bias)
            normalisers[tokens], chosen[tokens] = math.normalise(logits, targets[tokens], count)
        normalisers, chosen = classes.merge(normalisers, chosen)
        ctx.save_for_backward(hidden, weight, bias, targets, normalisers, logits if len(hidden) <= size else hidden.new_empty(0))
        ctx.count, ctx.size, ctx.classes, ctx.has_logits = count, size, classes, len(hidden) <= size
        return normalisers - chosen

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, normalisers, saved_logits = ctx.saved_tensors
        needs_hidden, needs_weight, needs_bias, *_ = ctx.needs_input_grad
        math, factors = logit_math(hidden.device.type, hidden.dtype), gradients[0].float().contiguous()  # a sum's gradient is one number
        has_logits = ctx.has_logits
        if not torch.compiler.is_compiling():  # a compiled graph is run once
            saved_logits = saved_logits.data  # which are overwritten: a second backward pass, as of some pipelines, computes them again
            ctx.has_logits = False
        of_hidden: list[Tensor] = []
        of_weights: list[Tensor] = []
        of_biases: list[Tensor] = []
        for tokens in _chunks(len(hidden), ctx.size):
            logits = saved_logits if has_logits else functional.linear(hidden[tokens], weight, bias)
            math.differentiate(logits, normalisers[tokens], targets[tokens], factors[tokens], ctx.count)
            if needs_hidden:
                of_hidden.append(logits @ weight)
            if needs_weight:
                _add(of_weights, logits.t() @ hidden[tokens])
            if needs_bias:
                _add(of_biases, logits.sum(0))
        of_inputs = ctx.classes.sum(torch.cat(of_hidden)) if needs_hidden else None
        of_weight, of_bias = (sums[0] if sums else None for sums in (of_weights, of_biases))
        return of_inputs, of_weight, of_bias, None, None, None, None


def _chunks(count: int, size: int) -> Iterator[slice]:
    """Slices of `size` tokens; one without tokens if there are none."""
    return (slice(start, start + size) for start in range(0, max(count, 1), size))


def _add(sums: list[Tensor], term: Tensor) -> None:
    """Add to the only entry, in fp32 if there are several terms."""
    if sums:
        sums[0] = sums[0].float().add_(term)
    else:
        sums.append(term)


PLAIN = PlainMath()


def logit_math(device_type: str, dtype: torch.dtype) -> LogitMath:
    """The way to compute on such a device: kernels on a GPU that runs them, and where Triton interprets them; else operators of torch."""
    return _kernels[0] if runs_kernels(device_type, dtype) else PLAIN


@constant_in_graphs
def runs_kernels(device_type: str, dtype: torch.dtype) -> bool:
    """Whether kernels have computed what operators of torch compute, on such a device and in such a dtype. If they should have, one line of
    the log says why not."""
    is_interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return (is_interpreted or device_type == "cuda") and _try_kernels(device_type, dtype)


_kernels: list[LogitMath] = []
"""The way by kernels, once they are imported."""


@cache
def _try_kernels(device_type: str, dtype: torch.dtype) -> bool:
    try:
        module = import_module("pipelines.tasks.logit_kernels")
        kernels = module.KernelMath()
        _compare(kernels, torch.device(device_type), dtype, 2 * module.BLOCK + 7)
    except Exception as error:  # of an import, a compiler, a driver or a comparison
        reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
        note_slower_way(f"cross entropy is computed by operators of torch, since its kernels do not run here: {reason[0]}")
        return False
    _kernels[:] = [kernels]
    return True


def _compare(kernels: LogitMath, device: torch.device, dtype: torch.dtype, count: int) -> None:
    """Raise RuntimeError unless kernels give what operators of torch give for the logits of three tokens, and one of padding."""
    logits = torch.linspace(-4, 4, 3 * (count + 1), device=device).reshape(3, count + 1).to(dtype)
    targets, factors = torch.tensor([0, count - 1, -1], device=device), torch.tensor([1.0, 0.5, 2.0], device=device)
    results: list[Tensor] = []
    for math in (kernels, PLAIN):
        gradient = logits.clone()
        normalisers, chosen = math.normalise(gradient, targets, count)
        math.differentiate(gradient, normalisers, targets, factors, count)
        results.append(torch.cat([normalisers, chosen, gradient.float().flatten()]))
    computed, expected = results
    if not torch.allclose(computed, expected, rtol=1e-5 if dtype == torch.float32 else 1e-2, atol=1e-6):
        raise RuntimeError(f"they differ from torch's by {float((computed - expected).abs().max()):.1e}")


def _without_autocast(device_type: str) -> AbstractContextManager:
    """A context in which products have the dtype of their factors."""
    return torch.autocast(device_type, enabled=False) if torch.is_autocast_enabled(device_type) else nullcontext()
