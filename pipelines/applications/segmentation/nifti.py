"""Reads NIfTI files, gzipped or not, as volumes whose axes go to the right, to the front and upwards (RAS), and brings them to a spacing
and to a shape.

A header may claim any size, and a gzip stream may unpack to any: no more is unpacked than MAX_VOXELS take.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from typing import Any

import numpy as np

from pipelines.data.features.media_files import UnreadableError
from pipelines.errors import ConfigError

MAX_VOXELS = 64 * 2**20
_MAX_OFFSET = 2**20
"""Bytes of header and extensions before the voxels."""
_GZIP = b"\x1f\x8b"
_HEADERS, _HEADER_BYTES = {348: "Nifti1Header", 540: "Nifti2Header"}, 540
"""By the header's size, which is its first number in either byte order."""
_NO_AFFINE = "its orientation is no valid affine matrix"
MISSING = "it needs nibabel, which is not installed; pip install 'lockstep-pipelines[medical]'"


@dataclass(frozen=True)
class Voxels:
    """A volume along the axes right, anterior, superior."""

    values: np.ndarray
    """Shape (right, front, up), float32."""
    spacing: tuple[float, ...]
    """Millimetres between voxels, along each axis."""
    affine: np.ndarray
    """Millimetres from indices, shape (4, 4)."""


@dataclass(frozen=True)
class Grid:
    """The size of a volume along the axes right, anterior, superior."""

    shape: tuple[int, ...]
    """Voxels along each axis."""
    spacing: tuple[float, ...]
    """Millimetres between them."""


def has_nibabel() -> bool:
    return find_spec("nibabel") is not None


def read_nifti(content: bytes) -> Voxels:
    """Read the bytes of a file.

    Raises UnreadableError if they are no NIfTI, are cut off, have several volumes or no orientation, or claim too many voxels, and
    ConfigError if nibabel is not installed.
    """
    claim = _read_claim(content)
    import nibabel  # noqa: PLC0415, only who reads volumes has it installed

    count = int(np.prod(claim.shape))
    needed = claim.offset + count * claim.dtype.itemsize
    unpacked = _unpack(content, needed, is_whole=True)
    if len(unpacked) < needed:
        raise UnreadableError(f"it is cut off: {len(unpacked):,} of {needed:,} bytes are there")
    with np.errstate(all="ignore"):
        values = np.frombuffer(unpacked, claim.dtype, count, claim.offset).reshape(claim.shape, order="F").astype(np.float32)
        if (claim.slope, claim.intercept) != (1, 0):
            values = values * np.float32(claim.slope) + np.float32(claim.intercept)
        # Axes are turned and mirrored, so that each goes most nearly to the right, to the front and upwards.
        turns = _axis_turns(claim.affine)
        turned = np.ascontiguousarray(nibabel.orientations.apply_orientation(values, turns))
        affine = claim.affine @ nibabel.orientations.inv_ornt_aff(turns, values.shape)
        return Voxels(turned, tuple(map(float, nibabel.affines.voxel_sizes(affine))), affine)


def read_grid(content: bytes) -> Grid:
    """Read the size and the spacing of a file from its beginning, of which 64 KiB are enough. Raises what `read_nifti` does."""
    claim = _read_claim(content)
    import nibabel  # noqa: PLC0415, only who reads volumes has it installed

    with np.errstate(all="ignore"):
        spacing = nibabel.affines.voxel_sizes(claim.affine)
        axes = np.argsort(_axis_turns(claim.affine)[:, 0]).tolist()
    return Grid(tuple(claim.shape[axis] for axis in axes), tuple(float(spacing[axis]) for axis in axes))


class _Claim:
    """A header's account of the voxels behind it."""

    def __init__(self, header: Any) -> None:
        self.magic = bytes(header["magic"].item())[:3]
        shape = tuple(map(int, header.get_data_shape()))
        while len(shape) > 3 and shape[-1] == 1:
            shape = shape[:-1]
        self.shape, self.dtype = shape, header.get_data_dtype()
        self.offset = max(int(header["vox_offset"]), header.single_vox_offset)
        slope, intercept = header.get_slope_inter()
        self.slope, self.intercept = slope or 1.0, intercept or 0.0
        self.is_oriented = bool(int(header["qform_code"]) or int(header["sform_code"]))
        self.affine: np.ndarray = header.get_best_affine()

    def check(self) -> None:
        """Raise UnreadableError for what no volume can have, or no machine can hold."""
        if self.magic not in (b"n+1", b"n+2"):
            raise UnreadableError("it is no NIfTI file in one piece (.nii or .nii.gz)")
        if len(self.shape) != 3 or min(self.shape) < 1:
            raise UnreadableError(f"it has {extent(self.shape)} voxels; a volume has three dimensions")
        if np.prod(self.shape, dtype=np.float64) > MAX_VOXELS:
            raise UnreadableError(f"it claims {extent(self.shape)} voxels, more than {MAX_VOXELS:,}")
        if self.dtype.kind not in "iuf":
            raise UnreadableError(f"its voxels are {self.dtype}, no numbers")
        if self.offset > _MAX_OFFSET:
            raise UnreadableError("its header is damaged")
        if not self.is_oriented:
            raise UnreadableError("it has no orientation: qform_code and sform_code are 0")
        if not np.isfinite(self.affine).all() or abs(np.linalg.det(self.affine[:3, :3])) < 1e-12:
            raise UnreadableError(_NO_AFFINE)


def _read_claim(content: bytes) -> _Claim:
    """The account of a file's header. Raises what `read_nifti` does."""
    if not has_nibabel():
        raise ConfigError(f"a NIfTI file cannot be read: {MISSING}")
    import nibabel  # noqa: PLC0415, only who reads volumes has it installed

    head = _unpack(content, _HEADER_BYTES)
    sizes = int.from_bytes(head[:4], "little"), int.from_bytes(head[:4], "big")
    size = next((size for size in sizes if size in _HEADERS), None)
    if size is None:
        raise UnreadableError("it is no NIfTI file")
    faults = (ValueError, OverflowError, KeyError, nibabel.spatialimages.HeaderDataError, nibabel.wrapstruct.WrapStructError)
    with np.errstate(all="ignore"):
        try:
            # Without nibabel's own check, which mends what it can and writes a line for each fault.
            # Without the extensions behind the header, of which only a part may be there.
            header: Any = getattr(nibabel, _HEADERS[size]).from_fileobj(BytesIO(head[:size]), check=False)
            claim = _Claim(header)
        except faults as error:
            raise UnreadableError("its header is damaged") from error
        claim.check()
        return claim


def _unpack(content: bytes, count: int, is_whole: bool = False) -> bytes:
    """The first `count` bytes of a file that may be gzipped, in one member or several.

    With `is_whole`, all is unpacked, so that checksums are compared; a few bytes more than `count` may be there."""
    if not content.startswith(_GZIP):
        return content[:count]
    limit = count + _MAX_OFFSET if is_whole else count
    unpacked, place, stream = bytearray(), 0, zlib.decompressobj(wbits=31)
    try:
        while place < len(content) and len(unpacked) < limit:
            if stream.eof:
                if not content.startswith(_GZIP, place):
                    break
                stream = zlib.decompressobj(wbits=31)
            part = memoryview(content)[place : place + 2**16]
            unpacked += stream.decompress(part, limit - len(unpacked))
            place += len(part) - len(stream.unconsumed_tail) - len(stream.unused_data)
    except zlib.error as error:
        raise UnreadableError("its gzip stream is damaged") from error
    if is_whole and not stream.eof and len(unpacked) >= count:
        raise UnreadableError("its gzip stream is cut off, or has more bytes than the header claims")
    return bytes(unpacked)


def _axis_turns(affine: np.ndarray) -> np.ndarray:
    """For each axis of the file, shape (3, 2): the axis right, front or up that it becomes, and 1, or -1 if it is mirrored."""
    import nibabel  # noqa: PLC0415, only who reads volumes has it installed

    turns: np.ndarray = nibabel.orientations.io_orientation(affine)
    if np.isnan(turns).any():
        raise UnreadableError(_NO_AFFINE)
    return turns


def extent(shape: Sequence[int]) -> str:
    """A size in words, such as 48x64x48."""
    return "x".join(map(str, shape))


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
