"""A worker among the others: its rank, their number, its device."""

from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class WorkerContext:
    """What a worker computes as. Collectives run in torch.distributed's default group, on the CPU and on the device."""

    rank: int = 0
    world_size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
