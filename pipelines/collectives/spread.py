"""Tensors that are spread over workers, as torch's DTensor: every worker holds a part of each."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.distributed.tensor import DTensor

from pipelines.weights import tensors


def local(tensor: Tensor) -> Tensor:
    """This worker's part of a tensor, in the same memory: all of it if it is not spread."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """The tensor with the parts of all workers. Collective if it is spread."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def parts(values: Mapping[str, Any]) -> dict[str, Tensor]:
    """This worker's part of every tensor in nested mappings, by dotted name; a part's name says which it is: `weight[0:8,0:4]`."""
    found = {}
    for name, tensor in tensors(values).items():
        if not isinstance(tensor, DTensor):
            found[name] = tensor
        elif local(tensor).numel():
            (place,) = tensor.__create_chunk_list__()
            ranges = (f"{start}:{start + size}" for start, size in zip(place.offsets, place.sizes, strict=True))
            found[f"{name}[{','.join(ranges)}]"] = local(tensor)
    return found


def name_of(part: str) -> str:
    """The name of the tensor that a part belongs to."""
    return part.partition("[")[0]
