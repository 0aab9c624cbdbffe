"""A worker's rank, world size, device and machine; and the small values that workers exchange, on the CPU.

Every exchange is collective, and a single worker exchanges nothing. Functions in which a worker waits for others are marked, so that its
heartbeat distinguishes waiting from work.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import torch
import torch.distributed as dist

Function = TypeVar("Function", bound=Callable[..., object])

WAITING_FUNCTIONS = set[tuple[str, str]]()
"""File and name of each, as in a stack."""


def waits_for_workers(function: Function) -> Function:
    """Decorate a function that returns only after other workers have sent or received."""
    code = function.__code__
    WAITING_FUNCTIONS.add((code.co_filename, code.co_name))
    return function


Value = TypeVar("Value")


def all_gather_object(value: Value, group: dist.ProcessGroup | None = None) -> list[Value]:
    """Every worker's value, by rank."""
    if not dist.is_initialized() or dist.get_world_size(group) == 1:
        return [value]
    values = [value] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group=group)
    return values


def broadcast_from_rank0(value: Value, group: dist.ProcessGroup | None = None) -> Value:
    """Rank 0's value, on every worker."""
    if not dist.is_initialized() or dist.get_world_size(group) == 1:
        return value
    values = [value]
    dist.broadcast_object_list(values, src=0, group=group)
    return values[0]


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
