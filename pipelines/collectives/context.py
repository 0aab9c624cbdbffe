"""A worker's rank, world size and device."""

from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class WorkerContext:
    """The context of a worker. Collectives run in torch.distributed's default group, on the CPU and on the device."""

    rank: int = 0
    world_size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
