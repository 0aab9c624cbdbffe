"""The flags that workers attach to an optimizer step, and the step's result."""

from dataclasses import astuple, dataclass, fields

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Flags:
    """Flags of a worker at a step. The step's all-reduce also counts how many workers set each of them."""

    save: bool = False
    """The state should be saved; only rank 0 sets it."""
    stop: bool = False
    """The worker was asked to stop."""
    written: bool = False
    """The worker's part of the last save is written."""

    def numbers(self) -> list[float]:
        return [float(flag) for flag in astuple(self)]


FLAGS = len(fields(Flags))


@dataclass(frozen=True)
class StepResult:
    """A step's sums, over all workers unless stated otherwise: scalar tensors on the device, valid until the next step."""

    grad_norm: Tensor
    """The norm of the mean gradient before clipping; -1 if it was not computed."""
    own_loss_sum: Tensor
    """The part of `loss_sum` that this worker computed."""
    loss_sum: Tensor
    weight: Tensor
    """The divisor that turns the sum of losses into their mean."""
    rows: Tensor
    flags: Tensor
    """The number of workers that set each of `Flags`, in its order: shape (FLAGS,)."""


def sum_over_replicas(own: Tensor, played: range, replicas: int, flags: Flags) -> tuple[Tensor, Tensor]:
    """Sums over all replicas of their numbers, of which `own`, shape (len(played), n), are this worker's; and over workers of flags:
    shapes (n,) and (FLAGS,). Collective.

    Every worker gets the same bits: an all-reduce adds each replica's numbers to zeros.
    """
    table = own.new_zeros(replicas, own.shape[1])
    table[played.start : played.stop] = own
    every = torch.cat([table.flatten(), torch.tensor(flags.numbers(), dtype=own.dtype).to(own.device, non_blocking=True)])
    if dist.is_initialized():
        dist.all_reduce(every)
    of_replicas, flags_of_all = every.split([table.numel(), FLAGS])
    return of_replicas.view_as(table).sum(0), flags_of_all
