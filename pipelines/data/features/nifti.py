"""Reads NIfTI files, gzipped or not, as volumes whose axes go to the right, to the front and upwards (RAS).

A header may claim any size, and a gzip stream may unpack to any: no more is unpacked than MAX_VOXELS take.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from typing import Any

import numpy as np

from pipelines.errors import ConfigError

MAX_VOXELS = 64 * 2**20
_MAX_OFFSET = 2**20
"""Bytes of header and extensions before the voxels."""
_HEADERS = {348: "Nifti1Image", 540: "Nifti2Image"}
"""By the header's size, which is its first number in either byte order."""
MISSING = "it needs nibabel, which is not installed; pip install -c constraints.txt '.[medical]'"


class UnreadableError(ValueError):
    """Reason why a file cannot be encoded, in a few words."""


@dataclass(frozen=True)
class Voxels:
    """A volume along the axes right, anterior, superior."""

    values: np.ndarray
    """Shape (right, front, up), float32."""
    spacing: tuple[float, ...]
    """Millimetres between voxels, along each axis."""
    affine: np.ndarray
    """Millimetres from indices, shape (4, 4)."""


def has_nibabel() -> bool:
    return find_spec("nibabel") is not None


def read_nifti(content: bytes) -> Voxels:
    """Read the bytes of a file.

    Raises UnreadableError if they are no NIfTI, are cut off, have several volumes or no orientation, or claim too many voxels, and
    ConfigError if nibabel is not installed.
    """
    if not has_nibabel():
        raise ConfigError(f"a NIfTI file cannot be read: {MISSING}")
    import nibabel  # noqa: PLC0415, only who reads volumes has it installed

    head = _unpack(content, 544)
    name = _HEADERS.get(int.from_bytes(head[:4], "little"), _HEADERS.get(int.from_bytes(head[:4], "big")))
    if name is None:
        raise UnreadableError("it is no NIfTI file")
    image_class: Any = getattr(nibabel, name)
    with np.errstate(all="ignore"):
        try:
            header = image_class.header_class.from_fileobj(BytesIO(head), check=True)
            shape, offset, dtype = tuple(map(int, header.get_data_shape())), int(header["vox_offset"]), header.get_data_dtype()
        except (ValueError, OverflowError, nibabel.spatialimages.HeaderDataError, nibabel.wrapstruct.WrapStructError) as error:
            raise UnreadableError("its header is damaged") from error
        _check(header, shape, offset, dtype)
        image = _image(image_class, content, shape, offset, dtype)
    return _voxels(nibabel, image, shape)


def resample(volume: Voxels, spacing: Sequence[float] | None, is_linear: bool) -> Voxels:
    """The volume with this spacing, whose voxels cover the same millimetres: by linear interpolation, or by the nearest voxel.

    Raises UnreadableError if it would have too many voxels.
    """
    if spacing is None or np.allclose(volume.spacing, spacing, rtol=1e-3, atol=0):
        return volume
    counts = [max(round(count * old / new), 1) for count, old, new in zip(volume.values.shape, volume.spacing, spacing, strict=True)]
    if np.prod(counts, dtype=np.float64) > MAX_VOXELS:
        raise UnreadableError(f"resampled it has {_text(counts)} voxels, more than {MAX_VOXELS:,}")
    values = volume.values
    for axis, count in enumerate(counts):
        values = _resample_axis(values, axis, count, is_linear)
    return Voxels(values, tuple(spacing), volume.affine)


def centre(values: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The middle of the values, with zeros at all sides where they are smaller than the shape."""
    centred = np.zeros(shape, values.dtype)
    kept = [min(have, want) for have, want in zip(values.shape, shape, strict=True)]
    source = tuple(slice((have - count) // 2, (have - count) // 2 + count) for have, count in zip(values.shape, kept, strict=True))
    target = tuple(slice((want - count) // 2, (want - count) // 2 + count) for want, count in zip(shape, kept, strict=True))
    centred[target] = values[source]
    return centred


def _unpack(content: bytes, count: int) -> bytes:
    """The first `count` bytes of a file that may be gzipped."""
    if not content.startswith(b"\x1f\x8b"):
        return content[:count]
    try:
        return zlib.decompressobj(wbits=31).decompress(content, count)
    except zlib.error as error:
        raise UnreadableError("its gzip stream is damaged") from error


def _check(header: Any, shape: tuple[int, ...], offset: int, dtype: np.dtype) -> None:
    while len(shape) > 3 and shape[-1] == 1:
        shape = shape[:-1]
    if len(shape) != 3 or min(shape) < 1:
        raise UnreadableError(f"it has {_text(shape)} voxels; a volume has three dimensions")
    if np.prod(shape, dtype=np.float64) > MAX_VOXELS:
        raise UnreadableError(f"it claims {_text(shape)} voxels, more than {MAX_VOXELS:,}")
    if dtype.kind not in "iuf" or not 0 <= offset <= _MAX_OFFSET:
        raise UnreadableError("its header is damaged" if dtype.kind in "iuf" else f"its voxels are {dtype}, no numbers")
    affine = header.get_best_affine()
    if not (int(header["qform_code"]) or int(header["sform_code"])):
        raise UnreadableError("it has no orientation: qform_code and sform_code are 0")
    if not np.isfinite(affine).all() or abs(np.linalg.det(affine[:3, :3])) < 1e-12:
        raise UnreadableError("its orientation is no valid affine matrix")


def _image(image_class: Any, content: bytes, shape: tuple[int, ...], offset: int, dtype: np.dtype) -> Any:
    needed = max(offset, image_class.header_class.single_vox_offset) + int(np.prod(shape)) * dtype.itemsize
    unpacked = _unpack(content, needed)
    if len(unpacked) < needed:
        raise UnreadableError(f"it is cut off: {len(unpacked):,} of {needed:,} bytes are there")
    return image_class.from_bytes(unpacked)


def _voxels(nibabel: Any, image: Any, shape: tuple[int, ...]) -> Voxels:
    image = image.slicer[(..., *[0] * (len(shape) - 3))] if len(shape) > 3 else image
    canonical = nibabel.as_closest_canonical(image)
    if None in nibabel.aff2axcodes(canonical.affine):
        raise UnreadableError("its orientation is no valid affine matrix")
    values = np.asarray(canonical.dataobj, dtype=np.float32)
    return Voxels(values, tuple(float(size) for size in canonical.header.get_zooms()[:3]), canonical.affine)


def _resample_axis(values: np.ndarray, axis: int, count: int, is_linear: bool) -> np.ndarray:
    size = values.shape[axis]
    places = np.clip((np.arange(count) + 0.5) * size / count - 0.5, 0, size - 1)
    if not is_linear:
        return values.take(np.floor(places + 0.5).astype(np.int64), axis)
    lower = np.floor(places).astype(np.int64)
    share = (places - lower).astype(values.dtype).reshape([-1 if dim == axis else 1 for dim in range(values.ndim)])
    return values.take(lower, axis) * (1 - share) + values.take(np.minimum(lower + 1, size - 1), axis) * share


def _text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
