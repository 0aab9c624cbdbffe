"""Measures the parts of a language model's step on a GPU, each beside its peers: the head with its cross entropy, and attention.

    python -m benchmarks.gpu.parts [--small] [--results FOLDER]

1. Head: the forward and backward pass of GPT-2's, for a microbatch in bf16: ours by kernels, by operators of torch and in chunks; torch's
   own, plain and compiled; Liger's and cut-cross-entropy's if they are installed.
2. Attention of GPT-2's heads, causal, forward and backward: each of torch's backends that runs here, and flex attention, compiled.

Prints the median of the calls in milliseconds, the most memory beside the inputs, and of a few tokens the difference of the gradient of the
head's input to that of float64. `--small` is for tests and machines without a GPU.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.report import RESULTS, Row, package_versions, save, show
from pipelines.tasks import linear_cross_entropy as head

CALLS, WARM_UP = 20, 3
WITHOUT_KERNELS = "ours without kernels"
BACKENDS = {
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "FlashAttention": SDPBackend.FLASH_ATTENTION,
    "memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "several kernels": SDPBackend.MATH,
}
Call = Callable[..., Tensor]


@dataclass(frozen=True)
class Shape:
    rows: int
    tokens: int
    heads: int
    width: int
    vocabulary: int


GPT2 = Shape(rows=16, tokens=1_024, heads=12, width=768, vocabulary=50_257)
SMALL = Shape(rows=2, tokens=16, heads=2, width=16, vocabulary=77)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    has_gpu = torch.cuda.is_available()
    if not has_gpu and not arguments.small:
        parser.error("this machine has no GPU that torch can use; --small runs the same code on CPUs")
    shape, device = SMALL if arguments.small else GPT2, torch.device("cuda" if has_gpu else "cpu")
    tables = {"head with its cross entropy": time_heads(shape, device), "attention": time_attention(shape, device)}
    for title, rows in tables.items():
        show(title, rows)
    print(save("gpu-parts-small" if arguments.small else "gpu-parts", tables, package_versions("torch"), arguments.results))


def time_heads(shape: Shape, device: torch.device) -> list[Row]:
    """A row for each way to compute nats of all tokens from the input of the head."""
    tokens = shape.rows * shape.tokens
    torch.manual_seed(0)
    hidden = torch.randn(tokens, shape.width, device=device)
    weight = torch.randn(shape.vocabulary, shape.width, device=device) * 0.02
    targets = torch.randint(shape.vocabulary, (tokens,), device=device)
    expected = _few_gradients(torch_nats, *(values.double() for values in (hidden[:64], weight)), targets[:64])
    rows: list[Row] = []
    for name, call in heads().items():
        inputs = [values.clone().requires_grad_() for values in (hidden, weight)]
        run = partial(_train_head, call, *inputs, targets)
        with plain_math() if name == WITHOUT_KERNELS else nullcontext():
            difference = _difference(call, hidden[:64], weight, targets[:64], expected)
            rows.append({"head": name, **_measure(run, device), "difference": difference})
    return rows


def heads() -> dict[str, Call]:
    """Functions of hidden, weight and targets; nats, or their sum."""
    ways: dict[str, Call] = {
        "ours": head.linear_cross_entropy,
        "ours in 4 chunks": lambda hidden, weight, targets: head.linear_cross_entropy(hidden, weight, targets, chunk=-(-len(hidden) // 4)),
        WITHOUT_KERNELS: head.linear_cross_entropy,
        "torch": torch_nats,
        "ours, compiled": torch.compile(head.linear_cross_entropy),
        "torch, compiled": torch.compile(torch_nats),
    }
    with suppress(ImportError):
        from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy  # noqa: PLC0415  # a peer

        ways["Liger"] = lambda hidden, weight, targets: liger_fused_linear_cross_entropy(hidden, weight, targets, reduction="sum")
    with suppress(ImportError):
        from cut_cross_entropy import linear_cross_entropy  # noqa: PLC0415

        ways["cut-cross-entropy"] = lambda hidden, weight, targets: linear_cross_entropy(
            hidden.bfloat16(), weight.bfloat16(), targets, reduction="none"
        )
    return ways


def torch_nats(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    logits = functional.linear(hidden, weight)
    return functional.cross_entropy(logits if logits.dtype == torch.float64 else logits.float(), targets, reduction="none")


@contextmanager
def plain_math() -> Iterator[None]:
    """Within the block, operators of torch take the place of kernels."""
    chosen = head.logit_math
    head.logit_math = lambda device_type, dtype: head.PLAIN
    try:
        yield
    finally:
        head.logit_math = chosen


def _train_head(call: Call, hidden: Tensor, weight: Tensor, targets: Tensor) -> None:
    hidden.grad = weight.grad = None
    with torch.autocast(hidden.device.type, torch.bfloat16):
        nats = call(hidden, weight, targets).sum()
    nats.backward()


def _few_gradients(call: Call, hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    leaf = hidden.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(call(leaf, weight, targets).sum(), leaf)
    return gradient.double()


def _difference(call: Call, hidden: Tensor, weight: Tensor, targets: Tensor, expected: Tensor) -> float:
    """Of the gradient of `hidden` to that of float64, relative to its largest value."""
    with torch.autocast(hidden.device.type, torch.bfloat16):
        actual = _few_gradients(call, hidden, weight, targets)
    return float((actual - expected).abs().max() / expected.abs().max())


def time_attention(shape: Shape, device: torch.device) -> list[Row]:
    """A row for each way to compute causal attention of all heads that runs on the device."""
    inputs = [
        torch.randn(shape.rows, shape.heads, shape.tokens, shape.width // shape.heads, device=device, dtype=torch.bfloat16).requires_grad_()
        for _ in range(3)
    ]
    rows: list[Row] = []
    for name, call in attentions(shape, device).items():
        try:
            rows.append({"attention": name, **_measure(partial(_train_attention, call, inputs), device)})
        except RuntimeError as error:  # a backend that does not take this device, dtype or shape
            rows.append({"attention": f"{name}: {str(error).splitlines()[0][:60]}"})
    return rows


def attentions(shape: Shape, device: torch.device) -> dict[str, Call]:
    """Functions of queries, keys and values."""

    def backend_attention(backend: SDPBackend) -> Call:
        def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            with sdpa_kernel(backend):
                return functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)

        return attend

    ways = {"torch's choice": partial(functional.scaled_dot_product_attention, is_causal=True)}
    ways |= {name: backend_attention(backend) for name, backend in BACKENDS.items()}
    if device.type == "cuda":
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: PLC0415  # takes seconds

        def is_earlier(row: Tensor, head_number: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return query >= key

        mask = create_block_mask(is_earlier, None, None, shape.tokens, shape.tokens, device="cuda")
        ways["flex, compiled"] = partial(torch.compile(flex_attention), block_mask=mask)
    return ways


def _train_attention(call: Call, inputs: list[Tensor]) -> None:
    torch.autograd.grad(call(*inputs).sum(), inputs)


def _measure(run: Callable[[], Any], device: torch.device) -> Row:
    """Median milliseconds of the calls, and the most GiB beside what was there before."""
    is_gpu = device.type == "cuda"
    for _ in range(WARM_UP):
        run()
    before = torch.cuda.memory_allocated(device) if is_gpu else 0
    if is_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    seconds = []
    for _ in range(CALLS):
        if is_gpu:
            torch.cuda.synchronize(device)
        started = time.perf_counter()
        run()
        if is_gpu:
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - started)
    peak = (torch.cuda.max_memory_allocated(device) - before) / 2**30 if is_gpu else None
    return {"ms": 1e3 * median(seconds), "GiB": peak}


if __name__ == "__main__":
    main()
