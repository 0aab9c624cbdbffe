"""Tensors of several shapes in a single flat one."""

from collections.abc import Sequence

import torch


class Flat:
    """A flat tensor of zeros, and a view of it for each shape."""

    def __init__(self, shapes: Sequence[Sequence[int]], device: torch.device, multiple: int = 1) -> None:
        """The number of entries is padded with zeros to a `multiple`."""
        sizes = [torch.Size(shape).numel() for shape in shapes]
        sizes.append(-sum(sizes) % multiple)
        self.whole = torch.zeros(sum(sizes), device=device)
        self.pieces = [part.view(shape) for part, shape in zip(self.whole.split(sizes), shapes, strict=False)]
