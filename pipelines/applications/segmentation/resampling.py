"""Brings volumes to a spacing and to a shape."""

from collections.abc import Sequence

import numpy as np

from pipelines.applications.segmentation.nifti import MAX_VOXELS, Voxels, extent
from pipelines.data.features.media.file_kinds import UnreadableError


def shape_at_spacing(shape: Sequence[int], old_spacing: Sequence[float], spacing: Sequence[float] | None) -> tuple[int, ...]:
    """The voxels along each axis after resampling to a spacing; None leaves them as they are."""
    if spacing is None or _is_close(old_spacing, spacing):
        return tuple(shape)
    return tuple(max(round(count * old / new), 1) for count, old, new in zip(shape, old_spacing, spacing, strict=True))


def resample(volume: Voxels, spacing: Sequence[float] | None, is_linear: bool) -> Voxels:
    """The volume with this spacing, whose voxels cover the same millimetres: by linear interpolation, or by the nearest voxel.

    Raises UnreadableError if it would have too many voxels.
    """
    if spacing is None or _is_close(volume.spacing, spacing):
        return volume
    counts = shape_at_spacing(volume.values.shape, volume.spacing, spacing)
    if np.prod(counts, dtype=np.float64) > MAX_VOXELS:
        raise UnreadableError(f"resampled it has {extent(counts)} voxels, more than {MAX_VOXELS:,}")
    values = volume.values
    # Axes that lose voxels come first, so that nothing between has more than the volume before or after.
    for axis in sorted(range(len(counts)), key=lambda axis: counts[axis] / volume.values.shape[axis]):
        values = _resample_axis(values, axis, counts[axis], is_linear)
    return Voxels(values, tuple(spacing), volume.affine)


def centre(values: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The middle of the values, with zeros at all sides where they are smaller than the shape."""
    centred = np.zeros(shape, values.dtype)
    counts = [min(have, want) for have, want in zip(values.shape, shape, strict=True)]
    source = tuple(slice((have - count) // 2, (have - count) // 2 + count) for have, count in zip(values.shape, counts, strict=True))
    target = tuple(slice((want - count) // 2, (want - count) // 2 + count) for want, count in zip(shape, counts, strict=True))
    centred[target] = values[source]
    return centred


def _is_close(old_spacing: Sequence[float], spacing: Sequence[float]) -> bool:
    return np.allclose(old_spacing, spacing, rtol=1e-3, atol=0)


def _resample_axis(values: np.ndarray, axis: int, count: int, is_linear: bool) -> np.ndarray:
    size = values.shape[axis]
    places = np.clip((np.arange(count) + 0.5) * size / count - 0.5, 0, size - 1)
    if not is_linear:
        return values.take(np.floor(places + 0.5).astype(np.int64), axis)
    lower = np.floor(places).astype(np.int64)
    share = (places - lower).astype(values.dtype).reshape([-1 if dim == axis else 1 for dim in range(values.ndim)])
    return values.take(lower, axis) * (1 - share) + values.take(np.minimum(lower + 1, size - 1), axis) * share
