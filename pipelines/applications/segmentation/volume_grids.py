"""The grid of voxels that suits volumes: shape, spacing, and the parts that a network sees."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, prod
from statistics import median_low

from pipelines.applications.segmentation.mask_draft import depth_for
from pipelines.applications.segmentation.nifti import Grid
from pipelines.applications.segmentation.resampling import shape_at_spacing

LARGEST_VOXELS = 2**21
"""The most voxels of an encoded volume. With its mask one takes 6 MB, and a worker holds row groups of 64 rows, 400 MB."""
PATCH_VOXELS, WHOLE_VOXELS = 64**3, 2**20
"""The most voxels that are trained on at once, and predicted at once. Each takes 130 and 40 bytes for each of 16 channels, so these take
550 and 670 MB."""
_PATCH_SIDE = 64
_STEP = 1.05
"""By which voxels grow until a volume has few enough."""
_EQUAL = 0.01
"""Spacings that differ by less are the same."""


@dataclass(frozen=True)
class VolumeGrid:
    """How volumes are encoded."""

    shape: tuple[int, ...]
    """Voxels to the right, to the front and upwards: multiples of 2^depth."""
    largest: tuple[int, ...]
    """The most voxels of a volume along each axis, before padding."""
    spacing: tuple[float, ...] | None
    """Millimetres to which volumes are resampled; None if all have the same, and few enough voxels."""
    is_coarser: bool
    """Whether voxels are larger than those of the files, so that the volume fits memory."""
    depth: int
    patch: tuple[int, ...] | None
    """A part that is trained on; None for whole volumes."""

    @property
    def voxels(self) -> int:
        return prod(self.shape)

    @property
    def tile(self) -> tuple[int, ...] | None:
        """A part that is predicted. None for whole volumes, which takes less time, since parts overlap."""
        return self.patch if self.voxels > WHOLE_VOXELS else None


def choose_grid(grids: Sequence[Grid]) -> VolumeGrid:
    """The grid that holds the largest of the volumes."""
    usual = tuple(_round(median_low(values)) for values in zip(*(grid.spacing for grid in grids), strict=True))
    differs = any(abs(old / new - 1) > _EQUAL for grid in grids for old, new in zip(grid.spacing, usual, strict=True))
    spacing = usual if differs else None
    largest = _largest(grids, spacing)
    if is_coarser := prod(largest) > LARGEST_VOXELS:
        spacing = _coarsen(grids, usual)
        largest = _largest(grids, spacing)
    depth = depth_for(min(_PATCH_SIDE, *largest))
    shape = tuple(2**depth * ceil(side / 2**depth) for side in largest)
    return VolumeGrid(shape, largest, spacing, is_coarser, depth, _patch(shape, 2**depth))


def spacing_range(grids: Iterable[Grid]) -> tuple[float, float]:
    """The least and the largest millimetres between voxels."""
    values = [value for grid in grids for value in grid.spacing]
    return _round(min(values)), _round(max(values))


def _largest(grids: Sequence[Grid], spacing: Sequence[float] | None) -> tuple[int, ...]:
    shapes = [shape_at_spacing(grid.shape, grid.spacing, spacing) for grid in set(grids)]
    return tuple(max(sides) for sides in zip(*shapes, strict=True))


def _coarsen(grids: Sequence[Grid], usual: Sequence[float]) -> tuple[float, ...]:
    """The least spacing with which the largest volume has few enough voxels: axes with short distances are resampled first."""
    least = min(usual)
    while prod(_largest(grids, spacing := tuple(max(distance, _round(least)) for distance in usual))) > LARGEST_VOXELS:
        least *= _STEP
    return spacing


def _patch(shape: tuple[int, ...], unit: int) -> tuple[int, ...] | None:
    """A part of few enough voxels, whose sides are multiples of the unit: the longest sides are cut."""
    sides = list(shape)
    while prod(sides) > PATCH_VOXELS:
        sides[sides.index(max(sides))] -= unit
    return tuple(sides) if sides != list(shape) else None


def _round(value: float) -> float:
    """Three digits, as a person would write it."""
    return float(f"{value:.3g}")
