"""Everything around the reduction of gradients: backward, division by the batch's weight, clipping, optimizer step, learning rate.

All factors of a gradient are here. It ends as that of the mean loss, clipped:

1. `scale_loss` divides the sum of losses by the weight that a global batch is expected to have, times the loss scale of fp16; and times the
   number of workers, if the exchange divides by it.
2. `unit` is the factor that gradients then have to that of the mean loss, for those who work with them before the update.
3. `apply` removes it: the loss scale, then by `rescale` both the ratio of the expected weight to the true one, which is `mean_factor`, and
   what is beyond the norm to clip at.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from math import cos, pi
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from pipelines.config.train.train import Train
from pipelines.runtime.compat.torch import scale_tensors
from pipelines.train.dtensor import local_part, total_norm
from pipelines.train.fine_tuning import FACTOR, parameter_groups
from pipelines.train.optimizers import WeightAverage, create_optimizer, reset_state
from pipelines.train.passes import Precision
from pipelines.train.step_clock import BACKWARD, OPTIMIZER, StepClock
from pipelines.train.workers import WorkerContext

ONE_CYCLE_WARMUP = 0.3
ONE_CYCLE_START, ONE_CYCLE_END = 1 / 25, 1 / 250_000
"""Fractions of the peak at which the cycle starts and ends, as in torch's OneCycleLR."""


def learning_rate(settings: Train, step: int, total_steps: int, steps_per_epoch: int) -> float:
    """The rate of step `step`, counted from 0, of a run of `total_steps`."""
    if settings.schedule == "one_cycle":
        return settings.lr * _one_cycle(step, total_steps, settings.warmup or ONE_CYCLE_WARMUP)
    warmup_steps = round(settings.warmup * total_steps)
    if step < warmup_steps:
        return settings.lr * (step + 1) / warmup_steps
    if settings.schedule == "cosine":
        return settings.lr * _half_cosine(1.0, 0.0, (step - warmup_steps) / max(total_steps - warmup_steps, 1))
    if settings.schedule == "step":
        return settings.lr * settings.lr_gamma ** (step // steps_per_epoch // settings.step_epochs)
    return settings.lr


def _one_cycle(step: int, total_steps: int, warmup: float) -> float:
    """The 1-cycle policy: up to 1 and down to almost 0, each along half a cosine (Smith and Topin 2017)."""
    top, last = max(warmup * total_steps - 1, 0.0), total_steps - 1
    if step <= top:
        return _half_cosine(ONE_CYCLE_START, 1.0, step / top if top else 1.0)
    return _half_cosine(1.0, ONE_CYCLE_END, (step - top) / (last - top))


def _half_cosine(start: float, end: float, share: float) -> float:
    """The value at `share` of the way from `start` to `end`, along half a cosine."""
    return end + (start - end) * (1 + cos(pi * share)) / 2


def mean_factor(expected_weight: float, weight: Tensor) -> Tensor:
    """The factor that makes a sum of losses' gradient, divided by the `expected_weight`, the gradient of the mean loss.

    It is 1 unless rows have different weights, or rounding changed the last bit of their sum.
    """
    return torch.where(weight > 0, expected_weight / weight, 0.0)


def rescale(gradients: list[Tensor], factor: Tensor, norm: Tensor, clip: float | None) -> None:
    """Multiply gradients by the factor, and by what limits the `norm` of the mean gradient to `clip`."""
    if clip is not None:
        factor = factor * (clip / (norm + 1e-6)).clamp(max=1.0)
    if gradients and (factor.device.type != "cpu" or factor.item() != 1):
        scale_tensors(gradients, factor.float().to(gradients[0].device))


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Set the rate of every group of parameters, times the group's factor."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get(FACTOR, 1.0)


class Update:
    """A model's optimizer and loss scaler, with their state in a checkpoint."""

    def __init__(
        self,
        settings: Train,
        model: nn.Module,
        context: WorkerContext,
        precision: Precision,
        clock: StepClock,
        pipeline: dist.ProcessGroup | None = None,
        clips_alike: bool = False,
    ) -> None:
        """`clock` is told when the backward pass and the optimizer begin. `pipeline`: the workers that hold the model together, each
        some of its parameters. `clips_alike`: whether all workers clip by the norm that rank 0 computes, since a sum over many entries
        rounds differently with another number of threads."""
        self._settings, self._model, self._precision, self._pipeline, self._clock = settings, model, precision, pipeline, clock
        self._expected_weight = settings.global_batch
        self._sends_norm = clips_alike and context.world_size > 1 and settings.clip_norm is not None
        self._parameters = list(model.parameters())
        self.optimizer = create_optimizer(settings, parameter_groups(settings, model))
        self._average = WeightAverage(model, settings.ema_decay) if settings.ema_decay else None
        self._scaler = torch.amp.GradScaler(context.device.type, enabled=precision.has_loss_scale)

    def backward(self, loss_sum: Tensor, averaged_over: int = 1) -> None:
        """Run the backward pass from a sum of losses.

        Gradients become those of the mean loss if the global batch's weight is its number of rows; else `apply` corrects
        them. If the reduction averages gradients over workers instead of summing them, `averaged_over` is their number.
        """
        self._clock.enter(BACKWARD)
        self.scale_loss(loss_sum, averaged_over).backward()

    def scale_loss(self, loss_sum: Tensor, averaged_over: int = 1) -> Tensor:
        """Scale a sum of losses as `backward` does, for a caller with a backward pass of its own."""
        return self._scaler.scale(loss_sum * (averaged_over / self._expected_weight))

    def unit(self, weight: Tensor) -> Tensor:
        """The factor of the mean gradient if the global batch has `weight`; `apply` divides gradients by it."""
        return self._scaler.scale(weight / self._expected_weight)

    @torch.no_grad()
    def apply(self, rate: float, weight: Tensor, compute_grad_norm: bool = True) -> Tensor:
        """Correct gradients for the global batch's true `weight`, clip them, and take the optimizer step.

        Returns the norm of the mean gradient before clipping: not finite if fp16 overflowed and the step was skipped, and
        -1 if nothing needs it.
        """
        self._clock.enter(OPTIMIZER)
        if self._precision.has_loss_scale:
            self._scaler.unscale_(self.optimizer)
        clip = self._settings.clip_norm
        factor = mean_factor(self._expected_weight, weight)
        norm = weight.new_full((), -1.0)  # not new_tensor, whose copy from the host would wait for the GPU
        if compute_grad_norm or clip is not None or self._precision.has_loss_scale:
            norm = self._norm(weight).to(weight.device) * factor
            if self._sends_norm:
                dist.broadcast(norm, 0)
        rescale([local_part(gradient) for gradient in self._gradients()], factor, norm, clip)
        set_rate(self.optimizer, rate)
        self._scaler.step(self.optimizer)
        self._scaler.update()
        self.optimizer.zero_grad()
        if self._average:
            self._average.update()
        return norm

    def average_weights(self) -> AbstractContextManager[None]:
        """Have the model's parameters be their averages meanwhile, if the config asks for averages."""
        return self._average.in_place() if self._average else nullcontext()

    def _norm(self, like: Tensor) -> Tensor:
        """The norm of the gradient of the whole model."""
        norm = total_norm(self._gradients())
        if self._pipeline is None:
            return norm
        square = norm.to(like).square()
        dist.all_reduce(square, group=self._pipeline)
        return square.sqrt()

    def _gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self._parameters if parameter.grad is not None]

    def state_dict(self) -> dict[str, Any]:
        """Model, optimizer and scaler, by fully qualified name."""
        from torch.distributed.checkpoint.state_dict import get_state_dict  # takes a second, which the driver need not spend

        is_new = not self.optimizer.state
        model, optimizer = get_state_dict(self._model, self.optimizer)
        if is_new:
            # torch has created the state by a step with zero gradients, which Adam counts, and in which weight decay moves momentum.
            reset_state(self.optimizer)
        average = {"average": self._average.state_dict()} if self._average else {}
        return {"model": model, "optimizer": optimizer, "scaler": self._scaler.state_dict(), **average}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        from torch.distributed.checkpoint.state_dict import set_state_dict

        set_state_dict(self._model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self._scaler.load_state_dict(state["scaler"])
        if self._average:
            self._average.load_state_dict(state["average"])
