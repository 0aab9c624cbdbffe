"""Exchanges small Python objects between workers, on the CPU. Every call is collective; a single worker exchanges nothing."""

from typing import TypeVar

import torch.distributed as dist

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
