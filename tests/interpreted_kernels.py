"""Kernels of `linear_cross_entropy` in the interpreter of Triton, beside float64. Run with TRITON_INTERPRET=1; ends with 1 at a fault."""

from itertools import product

import torch
from torch import Tensor
from torch.nn import functional

from pipelines.tasks import logit_kernels
from pipelines.tasks.linear_cross_entropy import PLAIN, linear_cross_entropy, logit_math

TOKENS, WIDTH = 13, 8


def differences(classes: int, block: int, chunk: int, dtype: torch.dtype) -> list[float]:
    """Of nats, and of the gradients of hidden, weight and bias: the largest difference to float64, relative to the largest value."""
    logit_kernels.BLOCK = block
    generator = torch.Generator().manual_seed(classes)
    # Numbers that every dtype has exactly, so that only sums and exponentials differ.
    hidden, weight, bias = (
        torch.randint(-8, 9, shape, generator=generator) / 8 for shape in ((TOKENS, WIDTH), (classes, WIDTH), (classes,))
    )
    targets = torch.randint(classes, (TOKENS,), generator=generator)
    factors = torch.linspace(-1, 2, TOKENS, dtype=torch.float64)
    results: list[list[Tensor]] = []
    for of_dtype in (dtype, torch.float64):
        leaves = [values.to(of_dtype).requires_grad_() for values in (hidden, weight, bias)]
        if of_dtype == torch.float64:
            nats = functional.cross_entropy(functional.linear(*leaves), targets, reduction="none")
        else:
            nats = linear_cross_entropy(leaves[0], leaves[1], targets, leaves[2], chunk)
        results.append([nats, *torch.autograd.grad((nats * factors.to(nats.dtype)).sum(), leaves)])
    return [float(((actual - expected).abs().max() / expected.abs().max()).detach()) for actual, expected in zip(*results, strict=True)]


def main() -> None:
    assert type(logit_math("cpu", torch.float32)).__name__ == "KernelMath", "the interpreter runs the kernels"
    for classes, block, chunk in product((5, 64, 77), (16, 128), (0, 4)):
        worst = max(differences(classes, block, chunk, torch.float32))
        assert worst < 1e-6, f"{classes} classes in blocks of {block}, chunks of {chunk}: {worst}"
    assert max(differences(77, 32, 0, torch.bfloat16)) < 0.01
    check_padding(classes=70, multiple=64)
    check_strides()


def check_padding(classes: int, multiple: int) -> None:
    """Logits of padding have no part in the sum, and no gradient."""
    logits = torch.randn(3, classes + -classes % multiple)
    targets, factors = torch.tensor([0, classes - 1, -1]), torch.tensor([1.0, 2.0, 3.0])
    results = []
    for math in (logit_kernels.KernelMath(), PLAIN):
        gradient = logits.clone()
        normalisers, chosen = math.normalise(gradient, targets, classes)
        math.differentiate(gradient, normalisers, targets, factors, classes)
        assert not gradient[:, classes:].any()
        results.append(torch.cat([normalisers, chosen, gradient.flatten()]))
    torch.testing.assert_close(*results)


def check_strides() -> None:
    """A sum has one number as the gradient of all tokens, and targets may be a column of a table."""
    hidden, weight = torch.randn(TOKENS, WIDTH), torch.randn(9, WIDTH)
    targets = torch.randint(9, (TOKENS, 2))[:, 1:].flatten()
    results = []
    for is_ours in (True, False):
        leaf = hidden.clone().requires_grad_()
        ours, logits = linear_cross_entropy(leaf, weight, targets), functional.linear(leaf, weight)
        nats = ours if is_ours else functional.cross_entropy(logits, targets, reduction="none")
        results.append(torch.cat([nats.detach(), torch.autograd.grad(nats.sum(), leaf)[0].flatten()]))
    torch.testing.assert_close(*results)


if __name__ == "__main__":
    main()
