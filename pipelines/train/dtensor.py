"""Tensors of which every worker holds a part: torch's DTensor, which is imported only by those who make some: it takes a second."""

import sys
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pipelines.runtime.weights import tensors

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_dtensor(tensor: Tensor) -> "TypeGuard[DTensor]":
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local_part(tensor: Tensor) -> Tensor:
    """This worker's part of a tensor, in the same memory: all of it if the tensor is no DTensor."""
    return tensor.to_local() if is_dtensor(tensor) else tensor


def full_tensor(tensor: Tensor) -> Tensor:
    """The tensor with the parts of all workers. Collective for a DTensor: then on the workers' device, wherever its parts are."""
    if not is_dtensor(tensor):
        return tensor
    from torch.distributed.tensor import Replicate

    placements, replicated = list(tensor.placements), tensor.to(tensor.device_mesh.device_type)
    assert is_dtensor(replicated)
    for dim in range(len(placements)):  # one at a time: torch warns of several, which may have to be gathered in this order
        placements[dim] = Replicate()
        replicated = replicated.redistribute(placements=placements)
    return replicated.to_local()


def total_norm(values: Iterable[Tensor]) -> Tensor:
    """The norm of all entries of all tensors. Collective for DTensors: one reduction for all that have the same mesh and placements, where
    torch would reduce each tensor that two dimensions of a mesh divide."""
    by_placement: dict[Any, list[Tensor]] = {}
    for tensor in values:
        by_placement.setdefault((tensor.device_mesh, tensor.placements) if is_dtensor(tensor) else None, []).append(tensor)
    norms = []
    for group in by_placement.values():
        norm, first = nn.utils.get_total_norm([local_part(tensor) for tensor in group]), group[0]
        if is_dtensor(first):
            square = norm.double().square().to(first.device_mesh.device_type)  # float64, since it is summed
            for dim, placement in enumerate(first.placements):
                if not placement.is_replicate():
                    dist.all_reduce(square, group=first.device_mesh.get_group(dim))
            norm = square.sqrt()
        norms.append(norm)
    return reduce(torch.hypot, norms) if norms else torch.zeros(())


def local_parts(values: Mapping[str, Any]) -> dict[str, Tensor]:
    """This worker's part of every tensor in nested mappings, by dotted name; a part's name says which it is: `weight[0:8,0:4]`."""
    parts = {}
    for name, tensor in tensors(values).items():
        if not is_dtensor(tensor):
            parts[name] = tensor
        elif local_part(tensor).numel():
            (chunk,) = tensor.__create_chunk_list__()
            ranges = (f"{start}:{start + size}" for start, size in zip(chunk.offsets, chunk.sizes, strict=True))
            parts[f"{name}[{','.join(ranges)}]"] = local_part(tensor)
    return parts


def tensor_name(part: str) -> str:
    """The name of the tensor that a part belongs to."""
    return part.partition("[")[0]
