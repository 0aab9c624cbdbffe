"""A model's buffers, such as batch norm's statistics: passes change them differently, and all workers get one value."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pipelines.errors import ConfigError, TrainingError


class ModelBuffers:
    """The buffers of a model that is expected to write them in place."""

    def __init__(self, model: nn.Module) -> None:
        self._model, self._named = model, dict(model.named_buffers())
        self._values = [torch.view_as_real(each) if each.is_complex() else each for each in self._named.values()]
        self.numel = sum(values.numel() for values in self._values)

    def check_in_place(self) -> None:
        """Raise ConfigError, naming it, for a buffer that was made or replaced since: its values could not be followed here."""
        found = dict(self._model.named_buffers())
        for name in found | self._named:
            if found.get(name) is not self._named.get(name):
                raise ConfigError(
                    f"buffer {name} was made, replaced or removed by a pass, which strategy exact cannot follow; register it in "
                    "__init__ and write it in place, as with copy_, or set train.strategy to ddp"
                )

    def clones(self) -> list[Tensor]:
        return [values.clone() for values in self._values]

    @torch.no_grad()
    def restore(self, before: Sequence[Tensor]) -> None:
        for values, start in zip(self._values, before, strict=True):
            values.copy_(start)

    @torch.no_grad()
    def changes(self, before: Sequence[Tensor]) -> list[Tensor]:
        """How much every entry rose since `before`: float64, which holds a difference of floats or of counts; (numel,) in all."""
        pairs = zip(self._values, before, strict=True)
        # What stayed did not rise; the difference of infinities, as in a mask, would be no number.
        return [(_wide(values) - _wide(start)).double().masked_fill(values == start, 0).flatten() for values, start in pairs]

    @torch.no_grad()
    def move(self, before: Sequence[Tensor], changes: Tensor) -> None:
        """Set every buffer to what it was `before` and a mean change of shape (numel,).

        Raises TrainingError for a buffer of whole numbers whose mean change is no whole number.
        """
        parts = changes.split([values.numel() for values in self._values])
        for name, values, start, part in zip(self._named, self._values, before, parts, strict=True):
            wide, mean = _wide(start), part.view_as(start)
            if not values.is_floating_point() and bool((mean != mean.round()).any()):
                raise TrainingError(
                    f"buffer {name} of whole numbers rose by {mean.flatten().tolist()[:3]} in the mean over shards; use strategy ddp"
                )
            values.copy_(torch.where(mean == 0, wide, wide + mean.to(wide.dtype)))  # -0 and 0 are 0

    @torch.no_grad()
    def average(self, workers: int) -> None:
        """Set every buffer to its mean over all workers; one of whole numbers to its greatest value. Collective.

        The mean is taken in float64, and so leaves alone what is the same on all, in float32 and narrower.
        """
        floats = [values for values in self._values if values.is_floating_point()]
        if floats:
            sums = torch.cat([values.double().flatten() for values in floats])
            dist.all_reduce(sums)
            for values, mean in zip(floats, (sums / workers).split([values.numel() for values in floats]), strict=True):
                values.copy_(mean.view_as(values))
        for values in self._values:
            if not values.is_floating_point():
                greatest = values.long().contiguous()
                dist.all_reduce(greatest, dist.ReduceOp.MAX)
                values.copy_(greatest)


def _wide(values: Tensor) -> Tensor:
    """A type that holds sums and differences: float64 has too few digits for large whole numbers."""
    return values.double() if values.is_floating_point() else values.long()
