"""A model's weights by name: their digests, and their bytes as a safetensors file, which contains no pickled code."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, nn


def tensors(values: Mapping[str, Any], prefix: str = "") -> dict[str, Tensor]:
    """Every tensor in nested mappings, by dotted name."""
    found: dict[str, Tensor] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found.update(tensors(value, f"{prefix}{name}."))
        elif isinstance(value, Tensor):
            found[prefix + name] = value
    return found


def digests(values: Mapping[str, Any]) -> dict[str, str]:
    """Hex SHA-256 of every tensor in nested mappings, of its dtype, shape and bytes, by dotted name."""
    return {name: _digest(tensor) for name, tensor in tensors(values).items()}


def model_digest(weights: Mapping[str, Tensor]) -> str:
    """Hex SHA-256 of all tensors' names and digests, in the order of names."""
    lines = [f"{name} {digest}\n" for name, digest in sorted(digests(weights).items())]
    return sha256("".join(lines).encode()).hexdigest()


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """The model's parameters and buffers by fully qualified name, on the CPU."""
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in model.state_dict().items()}


def to_bytes(weights: Mapping[str, Tensor]) -> bytes:
    return save(dict(weights))


def from_bytes(content: bytes) -> dict[str, Tensor]:
    return load(content)


def _digest(tensor: Tensor) -> str:
    values = tensor.detach().cpu().contiguous()
    digest = sha256(f"{values.dtype} {tuple(values.shape)}\n".encode())
    digest.update(values.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
