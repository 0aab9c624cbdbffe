"""Numbers' precision in the forward pass; parameters and gradients stay fp32."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch


@dataclass(frozen=True)
class Precision:
    dtype: torch.dtype
    scaled: bool = False
    """fp16's range is so small that the loss is scaled up and gradients down again."""

    def autocast(self, device_type: str) -> AbstractContextManager:
        return nullcontext() if self.dtype == torch.float32 else torch.autocast(device_type, self.dtype)


def precision_of(name: Literal["auto", "fp32", "bf16", "fp16"], device: torch.device) -> Precision:
    """What the config's name means on that device."""
    if name == "auto":
        name = "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return {"fp32": Precision(torch.float32), "bf16": Precision(torch.bfloat16), "fp16": Precision(torch.float16, scaled=True)}[name]
