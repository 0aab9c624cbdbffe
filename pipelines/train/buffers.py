"""Keeps a model's buffers, such as batch norm's statistics, equal on all workers, although each pass changes them differently."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pipelines.errors import ConfigError, TrainingError
from pipelines.runtime.compat.torch import BatchNorm


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
    def round_integers(self, changes: Tensor) -> Tensor:
        """Round the changes of integer buffers, within `changes` of shape (numel,), to whole numbers. Returns all changes."""
        parts = changes.split([values.numel() for values in self._values])
        pairs = zip(self._values, parts, strict=True)
        return torch.cat([part if values.is_floating_point() else part.round() for values, part in pairs])

    @torch.no_grad()
    def move(self, before: Sequence[Tensor], changes: Tensor) -> None:
        """Set every buffer to its value `before` plus the mean change, of shape (numel,).

        The mean of batch norm's count of passes is rounded: with `grad_accum_steps`, a shard with fewer rows may have fewer passes. Raises
        TrainingError for another integer buffer whose mean change is not an integer.
        """
        parts = changes.split([values.numel() for values in self._values])
        for name, values, start, part in zip(self._by_name, self._values, before, parts, strict=True):
            wide, mean = _wide(start), part.view_as(start)
            is_count = name in self._pass_counts
            mean = mean.round() if is_count else mean
            if not (is_count or values.is_floating_point()) and bool((mean != mean.round()).any()):
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
