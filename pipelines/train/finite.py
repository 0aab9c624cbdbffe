"""Rejects NaN and infinite values at the step where they occur, so that they are never saved."""

from collections.abc import Container, Iterable, Mapping
from math import isfinite

import torch
from torch import Tensor, nn

from pipelines.config.train.train import Train
from pipelines.errors import NonFiniteError
from pipelines.train.mesh import Mesh
from pipelines.train.reduce.context import all_gather_object
from pipelines.train.reduce.dtensor import local_part
from pipelines.train.step_statistics import StepStatistics

REMEDY = "the last complete checkpoint is kept; lower train.lr, set train.clip_norm, or correct the rows"


MOST_OVERFLOWS = 50
"""fp16 halves its loss scale, initially 65,536, at every overflow: after this many the scale is not the cause."""


def check_step(step: StepStatistics, mesh: Mesh, settings: Train, overflows: int) -> None:
    """Raise NonFiniteError, on all workers alike, if the step's loss or gradient norm is not finite.

    With fp16 loss scaling a non-finite gradient is an overflow, and the step is skipped. That becomes an error only after
    MOST_OVERFLOWS consecutive `overflows`.
    """
    has_loss_scale = settings.precision == "fp16"
    if isfinite(step.loss_sum) and (isfinite(step.grad_norm) or (has_loss_scale and overflows <= MOST_OVERFLOWS)):
        return
    if isfinite(step.loss_sum):
        raise NonFiniteError(f"step {step.number}: the gradient norm is {step.grad_norm}, although the loss is finite: {REMEDY}")
    losses = all_gather_object(step.own_loss_sum)
    blocks = zip(mesh.first_ranks, mesh.shards_by_replica(settings.shards), strict=True)
    wrong = [(rank, block) for rank, block in blocks if not isfinite(losses[rank])]
    has_shards = settings.strategy.reads_in_order
    where = ", ".join(f"worker {rank}{f' (shards {block.start} to {block.stop - 1})' if has_shards else ''}" for rank, block in wrong)
    raise NonFiniteError(f"step {step.number}: the loss is {step.loss_sum}, from {where or 'the sum over workers'}: {REMEDY}")


def infinite_buffers(model: nn.Module) -> frozenset[str]:
    """Names of a new model's buffers that contain infinities on purpose, such as masks."""
    return frozenset(name for name, values in model.named_buffers(remove_duplicate=False) if values.isinf().any())


def _any(flags: Iterable[Tensor]) -> bool:
    """Whether one is true: with one reading from each device, since parts of a model may be on the CPU."""
    by_device: dict[torch.device, list[Tensor]] = {}
    for flag in flags:
        by_device.setdefault(flag.device, []).append(flag)
    return any(bool(torch.stack(group).any()) for group in by_device.values())


def check_weights(weights: Mapping[str, Tensor], infinite: Container[str], step: int) -> None:
    """Raise NonFiniteError, on all workers alike, naming the first weight that is not finite. Collective: workers may hold
    different weights.

    The loss would show such a weight only one step later. Weights named in `infinite` may be infinite, but not NaN.
    """
    floats = {name: local_part(values) for name, values in weights.items() if values.is_floating_point()}
    wrong = {name: values.isnan().any() if name in infinite else ~values.isfinite().all() for name, values in floats.items()}
    first = next((name for name, is_wrong in wrong.items() if is_wrong), "") if _any(wrong.values()) else ""
    if first := next(filter(None, all_gather_object(first)), ""):
        raise NonFiniteError(f"step {step}: {first} is not finite after the step: {REMEDY}")
