"""Keeps a model's buffers, such as batch norm's statistics, equal on all workers, although each pass changes them differently.

Batch norm itself may be synchronised, over the rows of all workers, or frozen, with statistics that stay. torch's own synchronised one
needs GPUs; there, a worker without rows sends another dtype than the others do.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from pipelines.errors import ConfigError, TrainingError
from pipelines.runtime.compat.torch import BatchNorm, outside_of_graphs
from pipelines.tasks.metrics.accumulation import combine_moments, moments


class ModelBuffers:
    """The buffers of a model that is expected to write them in place."""

    def __init__(self, model: nn.Module) -> None:
        self._model, self._by_name = model, dict(model.named_buffers())
        self._values = [torch.view_as_real(buffer) if buffer.is_complex() else buffer for buffer in self._by_name.values()]
        self.numel = sum(values.numel() for values in self._values)
        modules = model.named_modules(remove_duplicate=False)
        norms = {name for name, module in modules if isinstance(module, BatchNorm)}
        self._pass_counts = {f"{name}.num_batches_tracked".lstrip(".") for name in norms}

    def check_in_place(self) -> None:
        """Raise ConfigError, naming the buffer, if a pass has added, replaced or removed one: its values are not tracked here."""
        buffers = dict(self._model.named_buffers())
        for name in buffers | self._by_name:
            if buffers.get(name) is not self._by_name.get(name):
                raise ConfigError(
                    f"buffer {name} was added, replaced or removed by a pass, which a reproducible strategy does not support; register it "
                    "in __init__ and write it in place, as with copy_, or set train.strategy to ddp"
                )

    def check_saved(self, before: Sequence[Tensor]) -> None:
        """Raise ConfigError, naming the buffer, if one that no checkpoint holds has changed from its value `before`."""
        saved = self._model.state_dict(keep_vars=True).keys()
        for name, values, start in zip(self._by_name, self._values, before, strict=True):
            if name not in saved and not torch.equal(values.nan_to_num(), start.nan_to_num()):
                raise ConfigError(
                    f"buffer {name} is changed by a pass, but persistent=False keeps it out of checkpoints, so that a resumed run would "
                    "differ; register it with persistent=True, or set train.strategy to ddp"
                )

    def clones(self) -> list[Tensor]:
        return [values.clone() for values in self._values]

    @torch.no_grad()
    def restore(self, before: Sequence[Tensor]) -> None:
        for values, start in zip(self._values, before, strict=True):
            values.copy_(start)

    @torch.no_grad()
    def changes(self, before: Sequence[Tensor]) -> list[Tensor]:
        """Each buffer's change since `before`, flat: float64 holds differences of floats and of counts. There are `numel` entries."""
        pairs = zip(self._values, before, strict=True)
        # Entries that did not change are 0: a difference of infinities, as in a mask, would be NaN.
        return [(_wide(values) - _wide(start)).double().masked_fill(values == start, 0).flatten() for values, start in pairs]

    @torch.no_grad()
    def move(self, before: Sequence[Tensor], changes: Tensor, *, rounds_integers: bool = False) -> None:
        """Set every buffer to its value `before` plus the mean change, of shape (numel,).

        The mean of batch norm's count of passes is rounded: with `grad_accum_steps`, a shard with fewer rows may have fewer passes. Raises
        TrainingError for another integer buffer whose mean change is not an integer, unless that `rounds_integers`.
        """
        parts = changes.split([values.numel() for values in self._values])
        for name, values, start, part in zip(self._by_name, self._values, before, parts, strict=True):
            wide, mean = _wide(start), part.view_as(start)
            if name in self._pass_counts or (rounds_integers and not values.is_floating_point()):
                mean = mean.round()
            elif not values.is_floating_point() and bool((mean != mean.round()).any()):
                raise TrainingError(
                    f"integer buffer {name} changed by {mean.flatten().tolist()[:3]} on average over shards; set train.strategy to ddp"
                )
            values.copy_(torch.where(mean == 0, wide, wide + mean.to(wide.dtype)))  # keeps -0, since -0 + 0 is 0

    @torch.no_grad()
    def average(self, workers: int, group: dist.ProcessGroup | None = None) -> None:
        """Set every float buffer to its mean over all workers, or those of a group, and every integer buffer to its maximum. Collective.

        The mean is computed in float64, so that it does not change float32 and narrower values that are equal on all workers.
        """
        floats = [values for values in self._values if values.is_floating_point()]
        if floats:
            sums = torch.cat([values.double().flatten() for values in floats])
            dist.all_reduce(sums, group=group)
            for values, mean in zip(floats, (sums / workers).split([values.numel() for values in floats]), strict=True):
                values.copy_(mean.view_as(values))
        for values in self._values:
            if not values.is_floating_point():
                greatest = values.long().contiguous()
                dist.all_reduce(greatest, dist.ReduceOp.MAX, group)
                values.copy_(greatest)


def _wide(values: Tensor) -> Tensor:
    """The values in a dtype for sums and differences: float64, or int64 for integers, which may be too large for float64."""
    return values.double() if values.is_floating_point() else values.long()


def keep_statistics(norm: BatchNorm) -> None:
    """Make a batch norm normalise by its running statistics, which then stay, while the model around it is trained."""
    if norm.track_running_stats and not isinstance(norm, KeepsStatistics):
        norm.eval()
        norm.__class__ = _frozen_class(type(norm))  # type: ignore[arg-type]  # a class has a hash


class KeepsStatistics(nn.Module):
    """A module that is never in training mode."""

    def train(self, mode: bool = True) -> "KeepsStatistics":
        return super().train(False)


@cache
def _frozen_class(kind: type[BatchNorm]) -> type[BatchNorm]:
    return type(f"Frozen{kind.__name__}", (KeepsStatistics, kind), {})


def is_single_row_error(error: ValueError) -> bool:
    """Whether the error is torch's for a batch norm of a single value per channel."""
    return "Expected more than 1 value per channel" in str(error)


def convert_sync_batch_norm(model: nn.Module) -> nn.Module:
    """The model with every batch norm, but frozen ones, replaced by one over the rows of all workers; names and values do not change."""
    for module in model.modules():
        if isinstance(module, BatchNorm) and not isinstance(module, KeepsStatistics):
            module.__class__ = _SyncBatchNorm
    return model


class _SyncBatchNorm(BatchNorm):
    """A batch norm over the rows of all workers; a worker may have none."""

    def _check_input_dim(self, input: Tensor) -> None:
        pass

    @outside_of_graphs  # a collective breaks the graph anyway
    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        output, count, mean, variance = _Normalise.apply(input, self.weight, self.bias, self.eps)
        # Without waiting for the device. A pass without a variance changes nothing: the last passes of a small step may have no rows.
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            self.num_batches_tracked += (has_variance := count > 1).any()
            for running, values in ((self.running_mean, mean.to(self.running_mean)), (self.running_var, variance.to(self.running_var))):
                share = self.momentum if self.momentum is not None else self.num_batches_tracked.clamp(min=1).reciprocal().to(running)
                running.copy_(torch.where(has_variance, running.lerp(values, share), running))
        return output


class _Normalise(torch.autograd.Function):
    """Collective in forward and backward. Computes bf16 and fp16 in float32, and returns the dtype of the input."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Returns the output, the count of values, their mean, and their unbiased variance; the last three are float64 of shape
        (channels,)."""
        values = _at_least_float32(input)
        local_moments = moments(values, _all_but_channels(values))
        by_worker = [torch.empty_like(local_moments) for _ in range(dist.get_world_size())]
        dist.all_gather(by_worker, local_moments)
        count, mean, squares = combine_moments(torch.stack(by_worker))  # of deviations, of every channel over all workers
        scale = torch.rsqrt(squares / count.clamp(min=1) + eps).to(values.dtype)
        ctx.save_for_backward(input, weight, mean, scale, count)
        output = (values - _broadcast(mean, values)) * _broadcast(scale, values)
        if weight is not None and bias is not None:
            output = output * _broadcast(weight, values) + _broadcast(bias, values)
        variance = squares / (count - 1).clamp(min=1)
        ctx.mark_non_differentiable(count, mean, variance)
        return output.to(input.dtype), count, mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, output_gradient: Tensor, *_: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None, None]:
        """Returns the gradient of all workers' loss with respect to this worker's input. For weight and bias, returns this
        worker's term of the sum over workers."""
        input, weight, mean, scale, count = ctx.saved_tensors
        values, gradient = _at_least_float32(input), _at_least_float32(output_gradient)
        normal = (values - _broadcast(mean, values)) * _broadcast(scale, values)
        dims = _all_but_channels(values)
        local_sums = torch.stack([gradient.sum(dims), (gradient * normal).sum(dims)]).double()
        sums = local_sums.clone()
        dist.all_reduce(sums)
        shift, slope = sums / count.clamp(min=1)
        input_gradient = gradient - _broadcast(shift, values) - normal * _broadcast(slope, values)
        if weight is None:
            return (input_gradient * _broadcast(scale, values)).to(input.dtype), None, None, None
        input_gradient = input_gradient * _broadcast(scale * weight, values)
        return input_gradient.to(input.dtype), local_sums[1].to(weight.dtype), local_sums[0].to(weight.dtype), None


def _at_least_float32(values: Tensor) -> Tensor:
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


def _all_but_channels(values: Tensor) -> list[int]:
    return [dim for dim in range(values.ndim) if dim != 1]


def _broadcast(values: Tensor, like: Tensor) -> Tensor:
    """One value per channel, with the dtype of `like` and in a shape that broadcasts to it."""
    return values.to(like.dtype).view([-1 if dim == 1 else 1 for dim in range(like.ndim)])
