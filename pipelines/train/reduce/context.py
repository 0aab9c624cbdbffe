"""A worker's rank, world size, device and machine."""

from dataclasses import dataclass, field

import torch

COLLECTIVE_SHARE = 0.8
"""Share of train.timeout_seconds that a collective operation may wait; the rest is for finding the missing worker."""


@dataclass(frozen=True)
class WorkerContext:
    """The context of a worker. Collectives run in torch.distributed's default group, on the CPU and on the device."""

    rank: int = 0
    world_size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    machine: str = ""
    """Names the machine, differently from all others of the group; empty if it is unknown."""
