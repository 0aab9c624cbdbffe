"""Tensors that are spread over workers, as torch's DTensor: every worker holds a part of each."""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate

from pipelines.runtime.weights import tensors


def local_part(tensor: Tensor) -> Tensor:
    """This worker's part of a tensor, in the same memory: all of it if it is not spread."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def full_tensor(tensor: Tensor) -> Tensor:
    """The tensor with the parts of all workers. Collective if it is spread: then on the device of the workers, wherever its parts are."""
    if not isinstance(tensor, DTensor):
        return tensor
    places, gathered = list(tensor.placements), tensor.to(tensor.device_mesh.device_type)
    assert isinstance(gathered, DTensor)
    for dim in range(len(places)):  # one at a time: torch warns of several, which may have to be gathered in this order
        places[dim] = Replicate()
        gathered = gathered.redistribute(placements=places)
    return gathered.to_local()


def total_norm(values: Iterable[Tensor]) -> Tensor:
    """The norm of all entries of all tensors. Collective if they are spread: one reduction for all tensors that are spread alike, where
    torch's own would reduce each of those that two dimensions of a mesh divide."""
    alike: dict[Any, list[Tensor]] = {}
    for tensor in values:
        alike.setdefault((tensor.device_mesh, tensor.placements) if isinstance(tensor, DTensor) else None, []).append(tensor)
    norms = [_norm_over_workers(group) for group in alike.values()]
    return reduce(torch.hypot, norms) if norms else torch.zeros(())


def _norm_over_workers(alike: Sequence[Tensor]) -> Tensor:
    """The norm of tensors that are spread alike: float64 if they are, since its square is summed."""
    norm = nn.utils.get_total_norm([local_part(tensor) for tensor in alike])
    first = alike[0]
    if not isinstance(first, DTensor):
        return norm
    square = norm.double().square().to(first.device_mesh.device_type)
    for dim, placement in enumerate(first.placements):
        if not placement.is_replicate():
            dist.all_reduce(square, group=first.device_mesh.get_group(dim))
    return square.sqrt()


def local_parts(values: Mapping[str, Any]) -> dict[str, Tensor]:
    """This worker's part of every tensor in nested mappings, by dotted name; a part's name says which it is: `weight[0:8,0:4]`."""
    found = {}
    for name, tensor in tensors(values).items():
        if not isinstance(tensor, DTensor):
            found[name] = tensor
        elif local_part(tensor).numel():
            (place,) = tensor.__create_chunk_list__()
            ranges = (f"{start}:{start + size}" for start, size in zip(place.offsets, place.sizes, strict=True))
            found[f"{name}[{','.join(ranges)}]"] = local_part(tensor)
    return found


def tensor_name(part: str) -> str:
    """The name of the tensor that a part belongs to."""
    return part.partition("[")[0]
