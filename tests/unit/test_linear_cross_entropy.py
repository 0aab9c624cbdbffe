"""The cross entropy of a head: figures and gradients of float64, by operators of torch and by kernels, kept or computed again."""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from pipelines.runtime import slower_ways
from pipelines.runtime.compat.torch_operators import autograd_tensors
from pipelines.tasks.linear_cross_entropy import PLAIN, Head, PlainMath, _compare, _try_kernels, linear_cross_entropy

TOKENS, WIDTH, CLASSES = 23, 16, 77


@pytest.fixture
def inputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(TOKENS, WIDTH, generator=generator)
    weight, bias = torch.randn(CLASSES, WIDTH, generator=generator), torch.randn(CLASSES, generator=generator)
    return hidden, weight, bias, torch.randint(CLASSES, (TOKENS,), generator=generator)


def gradients(results: Tensor, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Of a sum in which every token has a factor of its own."""
    factors = torch.linspace(-1, 2, len(results), dtype=results.dtype)
    return torch.autograd.grad((results * factors).sum(), inputs)


def float64_results(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    leaves = [values.double().requires_grad_() for values in (hidden, weight, bias)]
    expected = functional.cross_entropy(functional.linear(*leaves), targets, reduction="none")
    return expected.detach(), gradients(expected, tuple(leaves))


@pytest.mark.parametrize("chunk", [0, 1, 8, 23, 100])
def test_figures_and_gradients_are_those_of_float64(chunk: int, inputs: tuple[Tensor, ...]) -> None:
    *parameters, targets = inputs
    expected, expected_gradients = float64_results(*parameters, targets)
    hidden, weight, bias = (values.clone().requires_grad_() for values in parameters)
    nats = linear_cross_entropy(hidden, weight, targets, bias, chunk)
    assert nats.dtype == torch.float32
    torch.testing.assert_close(nats.double(), expected, rtol=0, atol=2e-6)
    for actual, expected in zip(gradients(nats, (hidden, weight, bias)), expected_gradients, strict=True):
        assert ((actual - expected).abs().max() / expected.abs().max()) < 1e-6


def test_a_head_gives_logits_or_their_cross_entropy(inputs: tuple[Tensor, ...]) -> None:
    hidden, _, _, targets = inputs
    head = Head(WIDTH, CLASSES, chunk=5)
    logits = head(hidden)
    assert torch.equal(logits, functional.linear(hidden, head.weight, head.bias))
    torch.testing.assert_close(head(hidden, targets), functional.cross_entropy(logits, targets, reduction="none"))
    assert head(hidden[:0], targets[:0]).shape == (0,)
    head(hidden[:0], targets[:0]).sum().backward()
    assert not head.weight.grad.any()


def test_only_what_is_trained_has_a_gradient(inputs: tuple[Tensor, ...]) -> None:
    hidden, weight, bias, targets = inputs
    expected = float64_results(hidden, weight, bias, targets)[1]
    weight.requires_grad_()
    nats = linear_cross_entropy(hidden, weight, targets, bias)
    torch.testing.assert_close(gradients(nats, (weight,))[0].double(), expected[1], rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        assert torch.equal(linear_cross_entropy(hidden, weight, targets, bias), nats)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_products_are_those_of_autocast(dtype: torch.dtype, inputs: tuple[Tensor, ...]) -> None:
    *parameters, targets = inputs
    results = []
    for is_ours in (True, False):
        leaves = [values.clone().requires_grad_() for values in parameters]
        with torch.autocast("cpu", dtype):
            if is_ours:
                nats = linear_cross_entropy(leaves[0], leaves[1], targets, leaves[2])
            else:
                nats = functional.cross_entropy(functional.linear(*leaves).float(), targets, reduction="none")
        results.append((nats, *gradients(nats, tuple(leaves))))
    for actual, expected in zip(*results, strict=True):
        assert actual.dtype == expected.dtype
        torch.testing.assert_close(actual, expected, rtol=0.03, atol=0.03)


@pytest.mark.parametrize("chunk", [0, 8])
def test_a_second_backward_pass_has_the_same_gradients(chunk: int, inputs: tuple[Tensor, ...]) -> None:
    """Pipelines without bubbles take one for the input, and another for the weights. The first overwrites the logits."""
    hidden, weight, _, targets = inputs
    hidden.requires_grad_()
    weight.requires_grad_()
    loss = linear_cross_entropy(hidden, weight, targets, chunk=chunk).sum()
    passes = [torch.autograd.grad(loss, (hidden, weight), retain_graph=True) for _ in range(3)]
    for gradients_of_pass in passes[1:]:
        for actual, expected in zip(gradients_of_pass, passes[0], strict=True):
            assert torch.equal(actual, expected)


def test_memory_that_is_kept_for_the_backward_pass_is_counted(inputs: tuple[Tensor, ...]) -> None:
    hidden, weight, _, targets = inputs
    weight.requires_grad_()
    for chunk, has_logits in ((0, True), (8, False)):
        nats = linear_cross_entropy(hidden, weight, targets, chunk=chunk)
        assert (TOKENS * CLASSES in [tensor.numel() for tensor in autograd_tensors(nats.sum())]) == has_logits


@pytest.mark.parametrize("chunk", [0, 8])
def test_compiled_it_gives_the_same(chunk: int, inputs: tuple[Tensor, ...]) -> None:
    *parameters, targets = inputs
    results = []
    for call in (linear_cross_entropy, torch.compile(linear_cross_entropy, fullgraph=True)):
        leaves = [values.clone().requires_grad_() for values in parameters]
        nats = call(leaves[0], leaves[1], targets, leaves[2], chunk)
        results.append((nats, *gradients(nats, tuple(leaves))))
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.fixture
def fresh_choice() -> Iterator[None]:
    _try_kernels.cache_clear()
    slower_ways._reasons.clear()
    yield
    _try_kernels.cache_clear()
    slower_ways._reasons.clear()


@pytest.mark.usefixtures("fresh_choice")
def test_kernels_that_do_not_run_here_are_named_once(inputs: tuple[Tensor, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setitem(sys.modules, "pipelines.tasks.logit_kernels", None)
    hidden, weight, bias, targets = inputs
    for _ in range(2):
        nats = linear_cross_entropy(hidden, weight, targets, bias)
    torch.testing.assert_close(nats.double(), float64_results(hidden, weight, bias, targets)[0], rtol=0, atol=2e-6)
    (reason,) = slower_ways.slower_ways()
    assert reason.startswith("cross entropy is computed by operators of torch, since its kernels do not run here: ")


def test_kernels_that_compute_something_else_are_not_taken() -> None:
    class Wrong(PlainMath):
        def normalise(self, logits: Tensor, targets: Tensor, count: int) -> tuple[Tensor, Tensor]:
            normalisers, chosen = super().normalise(logits, targets, count)
            return normalisers + 0.1, chosen

    _compare(PLAIN, torch.device("cpu"), torch.float32, 100)
    with pytest.raises(RuntimeError, match=r"they differ from torch's by 1"):
        _compare(Wrong(), torch.device("cpu"), torch.float32, 100)


def test_kernels_in_the_interpreter_give_what_float64_gives() -> None:
    """In a process of its own, since Triton asks once, when it is imported, whether it interprets."""
    triton_folder = Path(sys.prefix) / "triton"  # where make test installs it
    if not (triton_folder / "triton").exists() and find_spec("triton") is None:
        pytest.skip("Triton is not installed, which make test does where there is a package for this machine")
    script = Path(__file__).parents[1] / "interpreted_kernels.py"
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), str(triton_folder)])}
    answer = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr[-3_000:]
