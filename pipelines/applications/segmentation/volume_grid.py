"""Chooses the grid of voxels on which volumes are encoded, and the parts of it that are trained on and predicted at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod
from statistics import median_low
from typing import Any

from pipelines.applications.segmentation.mask_draft import depth_for
from pipelines.applications.segmentation.nifti import Grid, extent, shape_at_spacing
from pipelines.init.media.images import ChosenSettings

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
    is_coarser, least = prod(largest) > LARGEST_VOXELS, min(usual)
    while prod(largest) > LARGEST_VOXELS:  # axes with short distances are resampled first
        spacing = tuple(max(distance, _round(least)) for distance in usual)
        largest = _largest(grids, spacing)
        least *= _STEP
    depth = depth_for(min(_PATCH_SIDE, *largest))
    shape = tuple(2**depth * ceil(side / 2**depth) for side in largest)
    sides = list(shape)
    while prod(sides) > PATCH_VOXELS:  # the longest side is cut
        sides[sides.index(max(sides))] -= 2**depth
    return VolumeGrid(shape, largest, spacing, is_coarser, depth, tuple(sides) if sides != list(shape) else None)


def _largest(grids: Sequence[Grid], spacing: Sequence[float] | None) -> tuple[int, ...]:
    shapes = [shape_at_spacing(grid.shape, grid.spacing, spacing) for grid in set(grids)]
    return tuple(max(sides) for sides in zip(*shapes, strict=True))


def _round(value: float) -> float:
    """Three digits, as a person would write it."""
    return float(f"{value:.3g}")


def grid_reason(grid: VolumeGrid, grids: Sequence[Grid]) -> str:
    unit = 2**grid.depth
    reason = (
        f"voxels to the right, to the front and upwards: the largest of {len(grids):,} volumes has {extent(grid.largest)}, and {unit} "
        "divides the sides"
    )
    if not grid.spacing:
        return reason
    distances = [distance for grid in grids for distance in grid.spacing]
    least, largest = _round(min(distances)), _round(max(distances))
    why = "coarser, so that a row group fits memory" if grid.is_coarser else "their median"
    return f"{reason}\nspacing, in millimetres: that of the files is {least:g} to {largest:g}; this is {why}"


def grid_task(grid: VolumeGrid) -> ChosenSettings:
    task: dict[str, Any] = {"kind": "segmentation", "depth": grid.depth, "elastic": 2, "jitter": 0.3}
    reason = "no flips: left and right of a body are not the same"
    if grid.patch:
        task["patch"] = list(grid.patch)
        reason += f"\npatch: a voxel takes some 2 KB in training, so a whole volume {2e-6 * grid.voxels:.1f} GB"
    if grid.tile:
        task["tile"] = list(grid.tile)
        reason += f"\ntile: a voxel takes some 640 bytes in evaluation, so a whole volume {6.4e-7 * grid.voxels:.1f} GB"
    return ChosenSettings(task, reason)
