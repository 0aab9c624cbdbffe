"""A model's weights by name: their digests, and their bytes as safetensors files, which contain no pickled code."""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, load_file, save, save_file
from torch import Tensor, nn

WEIGHTS, WEIGHTS_INDEX = "weights.safetensors", "weights.safetensors.index.json"
"""Names of the only file of weights, and of the index if there are several."""


def tensors(values: Mapping[str, Any], prefix: str = "") -> dict[str, Tensor]:
    """Every tensor in nested mappings, by dotted name."""
    by_name: dict[str, Tensor] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            by_name.update(tensors(value, f"{prefix}{name}."))
        elif isinstance(value, Tensor):
            by_name[prefix + name] = value
    return by_name


def digests(values: Mapping[str, Any]) -> dict[str, str]:
    """Hex SHA-256 of every tensor in nested mappings, of its dtype, shape and bytes, by dotted name."""
    by_name = {}
    for name, tensor in tensors(values).items():
        on_cpu = tensor.detach().cpu().contiguous()
        digest = sha256(f"{on_cpu.dtype} {tuple(on_cpu.shape)}\n".encode())
        digest.update(on_cpu.reshape(-1).view(torch.uint8).numpy().data)
        by_name[name] = digest.hexdigest()
    return by_name


def model_digest(weights: Mapping[str, Tensor]) -> str:
    """Hex SHA-256 of all tensors' names and digests, in the order of names."""
    lines = [f"{name} {digest}\n" for name, digest in sorted(digests(weights).items())]
    return sha256("".join(lines).encode()).hexdigest()


def model_weights(model: nn.Module) -> dict[str, Tensor]:
    """The model's parameters and buffers by fully qualified name, on the CPU."""
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in model.state_dict().items()}


def to_bytes(weights: Mapping[str, Tensor]) -> bytes:
    return save(dict(weights))


def from_bytes(content: bytes) -> dict[str, Tensor]:
    return load(content)


def write_files(weights: Mapping[str, Tensor], folder: Path, most_bytes: int) -> list[Path]:
    """Write weights on the CPU to `weights.safetensors` or, if they have more bytes, to several files of at most `most_bytes` and an
    index of them, as Hugging Face's libraries do. A larger tensor has a file of its own.

    Returns the files; `read_files` takes the first one.
    """
    groups: list[dict[str, Tensor]] = [{}]
    bytes_left = most_bytes
    for name, tensor in sorted(weights.items()):
        if groups[-1] and tensor.nbytes > bytes_left:
            groups.append({})
            bytes_left = most_bytes
        groups[-1][name] = tensor
        bytes_left -= tensor.nbytes
    if len(groups) == 1:
        save_file(groups[0], folder / WEIGHTS)
        return [folder / WEIGHTS]
    files = [folder / f"weights-{number:05}-of-{len(groups):05}.safetensors" for number in range(1, len(groups) + 1)]
    for group, file in zip(groups, files, strict=True):
        save_file(group, file)
    file_of_tensor = {name: file.name for group, file in zip(groups, files, strict=True) for name in group}
    index = {"metadata": {"total_size": sum(tensor.nbytes for tensor in weights.values())}, "weight_map": file_of_tensor}
    (folder / WEIGHTS_INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")
    return [folder / WEIGHTS_INDEX, *files]


def read_files(first: Path) -> dict[str, Tensor]:
    """The weights in a safetensors file, or in all files beside an index that it names."""
    if first.suffix != ".json":
        return load_file(first)
    names = sorted(set(json.loads(first.read_bytes())["weight_map"].values()))
    return {name: tensor for file in names for name, tensor in load_file(first.parent / file).items()}
