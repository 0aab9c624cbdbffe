"""Activation checkpointing: a block's activations are not kept for its backward pass, but computed again."""

from functools import partial
from typing import Any, Literal

from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

_EXPENSIVE = ("mm", "addmm", "bmm", "baddbmm", "convolution")
"""Names of the operations whose results `selective` keeps, besides all forms of attention."""


def recompute(block: nn.Module, kind: Literal["none", "selective", "full"]) -> None:
    """Make a block's backward pass compute what its forward pass does not keep, with the same random numbers. Names do not change."""
    if kind == "none":
        return
    contexts: dict[str, Any] = {"context_fn": partial(create_selective_checkpoint_contexts, _policy)} if kind == "selective" else {}
    block.forward = partial(checkpoint, block.forward, use_reentrant=False, **contexts)


def _policy(context: object, operation: Any, *arguments: object, **named: object) -> CheckpointPolicy:
    name: str = operation.name().removeprefix("aten::").partition(".")[0]
    is_kept = name in _EXPENSIVE or name.startswith("_scaled_dot_product_")
    return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE
