"""Passes tensors between workers of a group. The receiver need not know shape and dtype."""

import torch
import torch.distributed as dist
from torch import Tensor


def send(tensor: Tensor, place: int, group: dist.ProcessGroup) -> None:
    dist.send_object_list([(tensor.shape, tensor.dtype)], group=group, group_dst=place, device=tensor.device)
    dist.send(tensor, group=group, group_dst=place)


def receive(place: int, group: dist.ProcessGroup, device: torch.device) -> Tensor:
    header: list[tuple[torch.Size, torch.dtype]] = [(torch.Size(), torch.float32)]
    dist.recv_object_list(header, group=group, group_src=place, device=device)
    tensor = torch.empty(header[0][0], dtype=header[0][1], device=device)
    dist.recv(tensor, group=group, group_src=place)
    return tensor


def broadcast_from(tensor: Tensor, place: int, group: dist.ProcessGroup, device: torch.device) -> Tensor:
    """The tensor of the worker at that place, on all workers of the group. Collective."""
    header = [(tensor.shape, tensor.dtype)]
    dist.broadcast_object_list(header, group=group, group_src=place, device=device)
    shape, dtype = header[0]
    output = tensor.contiguous() if dist.get_rank(group) == place else torch.empty(shape, dtype=dtype, device=device)
    dist.broadcast(output, group=group, group_src=place)
    return output
