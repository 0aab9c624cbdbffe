"""Precision of the forward pass; parameters and gradients stay fp32."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch


@dataclass(frozen=True)
class Precision:
    dtype: torch.dtype
    has_loss_scale: bool = False
    """Whether the loss is scaled up, and gradients down again, since fp16 has a small range."""

    def autocast(self, device_type: str) -> AbstractContextManager:
        return nullcontext() if self.dtype == torch.float32 else torch.autocast(device_type, self.dtype)


def choose_precision(name: Literal["auto", "fp32", "bf16", "fp16"], device: torch.device) -> Precision:
    """Choose the precision that `train.precision` means on the device."""
    if name == "auto":
        name = "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[name]
    return Precision(dtype, has_loss_scale=name == "fp16")
