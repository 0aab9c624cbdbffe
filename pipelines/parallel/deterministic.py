"""Refuses nondeterministic layers and kernels by name, before training starts."""

import os
from collections.abc import Callable

import torch
from torch import Tensor, nn

from pipelines.errors import ConfigError

CUBLAS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
"""Without it cuBLAS picks a workspace, and so the order of sums, depending on other streams. Read when CUDA starts."""
_REMEDY = "strategy exact cannot have it: take another layer, or set train.strategy to ddp"
_TORCH_SAYS = " does not have a deterministic implementation"


def only_deterministic(device: torch.device) -> None:
    """Have torch refuse kernels whose sums depend on timing, from now on in this process."""
    if device.type == "cuda":
        for name, value in CUBLAS.items():
            os.environ.setdefault(name, value)
        torch.backends.cudnn.benchmark = False  # it would pick kernels by measured speed
    torch.use_deterministic_algorithms(True)
    # Filling memory that kernels are about to write anyway takes a pass over it for every tensor.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def check_model(model: nn.Module) -> None:
    """Raise ConfigError, naming the layer, for one that has no deterministic form."""
    for name, module in model.named_modules():
        if isinstance(module, nn.SyncBatchNorm):
            raise ConfigError(f"{name} is a synchronised batch norm, whose sums depend on the workers; take BatchNorm2d, or strategy ddp")
        if getattr(module, "sparse", False):
            raise ConfigError(f"{name} has sparse gradients, which have no fixed tree; strategy exact cannot have it: set sparse=False")


def check_passes(model: nn.Module, run: Callable[[], Tensor]) -> None:
    """Run forward and backward twice from the same state, and compare the bits.

    `run` returns sums and leaves gradients, which are removed. Raises ConfigError, naming the operation or the weight,
    if torch knows a kernel of it to be nondeterministic, or if the two differ.
    """
    found = []
    for _ in range(2):
        try:
            sums = run()
        except RuntimeError as error:
            if _TORCH_SAYS not in str(error):
                raise
            raise ConfigError(f"{str(error).partition(_TORCH_SAYS)[0]} has no deterministic kernel on this device; {_REMEDY}") from error
        found.append({"the loss": sums})
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                if parameter.grad.layout != torch.strided:
                    raise ConfigError(f"{name} has a sparse gradient, which has no fixed tree; {_REMEDY}")
                found[-1][f"the gradient of {name}"] = parameter.grad
                parameter.grad = None
    first, second = found
    for name, values in first.items():
        if name not in second or not _same_bits(values, second[name]):
            raise ConfigError(
                f"two passes over the same rows from the same state differ in {name}: some layer is not deterministic, or draws "
                "random numbers that torch's seed does not decide, which strategy exact cannot have; draw them with torch, or set "
                "train.strategy to ddp"
            )


def _same_bits(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))
