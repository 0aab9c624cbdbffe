"""Tensors of a task that losses need on the device of the model."""

import torch
from torch import Tensor


class Constant:
    """A tensor that is copied to each device, in each dtype, once: a copy in every step would have the host wait for the GPU."""

    def __init__(self, values: Tensor) -> None:
        self.values = values
        self._copies: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def to(self, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
        """The tensor on this device, by default in its own dtype."""
        key = device, dtype or self.values.dtype
        if torch.compiler.is_compiling():  # a graph has its own copy
            return self.values.to(*key)
        if key not in self._copies:
            self._copies[key] = self.values.to(*key)
        return self._copies[key]
