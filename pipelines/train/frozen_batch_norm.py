"""Frozen batch norm, which normalises by statistics that stay."""

from functools import cache

from torch import nn

from pipelines.runtime.compat.torch import BatchNorm


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
