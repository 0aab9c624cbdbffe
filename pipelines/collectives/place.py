"""Where a worker stands among the others."""

from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class Place:
    """Where a worker computes. Workers meet through torch.distributed's default group, on the CPU and on the device."""

    rank: int = 0
    world_size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
