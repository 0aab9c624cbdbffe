"""A model's weights by name: their digest, and as the bytes of a safetensors file, which unpickles nothing."""

from collections.abc import Mapping
from hashlib import sha256

import torch
from safetensors.torch import load, save
from torch import Tensor, nn


def model_digest(weights: Mapping[str, Tensor]) -> str:
    """Hex SHA-256 over every tensor's name, dtype, shape and bytes, by name."""
    digest = sha256()
    for name, tensor in sorted(weights.items()):
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {values.dtype} {tuple(values.shape)}\n".encode())
        digest.update(values.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """The model's parameters and buffers by fully qualified name, on the CPU."""
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in model.state_dict().items()}


def to_bytes(weights: Mapping[str, Tensor]) -> bytes:
    return save(dict(weights))


def from_bytes(content: bytes) -> dict[str, Tensor]:
    return load(content)
