"""Activation checkpointing: a block's backward pass computes activations again, instead of keeping them."""

from functools import partial
from typing import Any, Literal

from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from pipelines.config.train import Train
from pipelines.errors import ConfigError
from pipelines.runtime.compat.torch import BatchNorm
from pipelines.strategies.sharded.settings import Settings
from pipelines.tasks.base import Task

_EXPENSIVE = ("mm", "addmm", "bmm", "baddbmm", "convolution")
"""Names of the operations whose results `selective` keeps, besides all forms of attention."""


def recompute(block: nn.Module, kind: Literal["none", "selective", "full"]) -> None:
    """Make a block's backward pass compute what its forward pass does not keep, with the same random numbers. Names do not change."""
    if kind == "none":
        return
    contexts: dict[str, Any] = {"context_fn": partial(create_selective_checkpoint_contexts, _policy)} if kind == "selective" else {}
    block.forward = partial(checkpoint, block.forward, use_reentrant=False, **contexts)


def check_recompute(settings: Train, task: Task, model: nn.Module) -> None:
    """Raise ConfigError for a task whose blocks cannot be computed again; `model` is the task's, with or without values."""
    kind, name, blocks = settings.strategy_as(Settings).activation_checkpointing, type(task).__name__, task.blocks(model)
    if kind != "none" and not blocks:
        raise ConfigError(
            f"train.strategy.activation_checkpointing is {kind}, but task {name} declares no blocks to compute again; set it to none"
        )
    if kind != "none" and any(isinstance(module, BatchNorm) for block in blocks for module in block.modules()):
        raise ConfigError(
            f"train.strategy.activation_checkpointing is {kind}, but blocks of task {name} contain batch norm, whose statistics would "
            "count every row twice; set it to none"
        )


def _policy(context: object, operation: Any, *arguments: object, **options: object) -> CheckpointPolicy:
    name: str = operation.name().removeprefix("aten::").partition(".")[0]
    is_kept = name in _EXPENSIVE or name.startswith("_scaled_dot_product_")
    return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE
