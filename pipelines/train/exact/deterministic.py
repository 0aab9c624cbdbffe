"""Rejects nondeterministic layers and kernels by name, before training starts."""

import os
from collections.abc import Callable

import torch
from torch import Tensor, nn

from pipelines.errors import ConfigError
from pipelines.train.buffers import ModelBuffers

CUBLAS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
"""Without it, cuBLAS chooses its workspace, and so the order of additions, depending on other streams. Read when CUDA starts."""
_REMEDY = "a reproducible strategy does not support it: use another layer, or set train.strategy to ddp"
_TORCH_SAYS = " does not have a deterministic implementation"


def require_deterministic_kernels(device: torch.device) -> None:
    """Make torch reject nondeterministic kernels, from now on in this process."""
    if device.type == "cuda":
        for name, value in CUBLAS.items():
            os.environ.setdefault(name, value)
        torch.backends.cudnn.benchmark = False  # it would pick kernels by measured speed
    torch.use_deterministic_algorithms(True)
    # By default torch then also fills new memory, an additional pass over every tensor that a kernel is about to write.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def check_model(model: nn.Module) -> None:
    """Raise ConfigError, naming the layer, for one that has no deterministic form."""
    for name, module in model.named_modules():
        if isinstance(module, nn.SyncBatchNorm):
            raise ConfigError(
                f"{name} is a synchronised batch norm, whose sums depend on the number of workers; use a BatchNorm1d, BatchNorm2d or "
                "BatchNorm3d, or set train.strategy to ddp and train.sync_batch_norm to true"
            )
        if getattr(module, "sparse", False):
            raise ConfigError(f"{name} has sparse gradients, which a reproducible strategy does not support; set sparse=False")


def check_passes(model: nn.Module, buffers: ModelBuffers, run: Callable[[], Tensor]) -> None:
    """Run forward and backward twice from the same state, and compare the bits. The model does not change.

    `run` seeds torch, returns the loss's sums, and leaves gradients in the parameters, which are removed. Raises ConfigError if
    torch reports a nondeterministic kernel, if the two passes differ, or if one replaces a buffer or changes one that no checkpoint
    holds. The error names the operation, the parameter or the buffer.
    """
    before = buffers.clones()
    passes: list[dict[str, Tensor]] = []
    for _ in range(2):
        try:
            sums = run()
        except RuntimeError as error:
            if _TORCH_SAYS not in str(error):
                raise
            raise ConfigError(f"{str(error).partition(_TORCH_SAYS)[0]} has no deterministic kernel on this device; {_REMEDY}") from error
        buffers.check_in_place()
        buffers.check_saved(before)
        buffers.restore(before)
        passes.append({"the loss": sums})
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                if parameter.grad.layout != torch.strided:
                    raise ConfigError(f"{name} has a sparse gradient; {_REMEDY}")
                passes[-1][f"the gradient of {name}"] = parameter.grad
                parameter.grad = None
    first, second = passes
    for name, values in first.items():
        if name not in second or not _have_same_bits(values, second[name]):
            raise ConfigError(
                f"two passes over the same rows from the same state differ in {name}: a layer is not deterministic, or draws random "
                "numbers that do not depend on torch's seed; draw them with torch, or set train.strategy to ddp"
            )


def _have_same_bits(first: Tensor, second: Tensor) -> bool:
    return torch.equal(first.reshape(-1).view(torch.uint8), second.reshape(-1).view(torch.uint8))
