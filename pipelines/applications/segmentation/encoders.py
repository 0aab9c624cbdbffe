"""Encoders of masks, the class of each pixel or voxel, and of volumes, such as those of computed tomography and magnetic resonance."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pipelines.applications.segmentation.nifti import MISSING, Voxels, centre, has_nibabel, read_nifti, resample
from pipelines.data.features.arrays import array_element, flatten_arrays, is_bytes, scatter_arrays
from pipelines.data.features.base import FileEncoder
from pipelines.data.features.media_files import UPRIGHT, UnreadableError, orientation, turn
from pipelines.data.features.picture_files import extent_text, read_frame, read_picture
from pipelines.data.features.raw import is_number, numbers
from pipelines.data.versions.schema import Role, TensorColumn

if TYPE_CHECKING:
    from pipelines.applications.segmentation.settings import MaskSettings, VolumeSettings

_PNG = b"\x89PNG\r\n\x1a\n"
_STRETCHED = {"L;2": 85, "L;4": 17}
"""By Pillow's name of the form of a PNG's pixels."""
_GREY = ("1", "L", "P", "I", "I;16", "I;16B")
"""Pillow's modes of one number per pixel."""


class Mask(FileEncoder["MaskSettings"]):
    """uint8 classes of shape (height, width) or (right, front, up). Masks of another size, values without a class, and anything but PNG,
    NIfTI, raw bytes of that shape and arrays are refused."""

    has_classes_in_values = True

    @classmethod
    def refusal(cls, settings: MaskSettings, kind: pa.DataType) -> str:
        if is_bytes(kind):
            return MISSING if len(settings.shape) == 3 and not has_nibabel() else ""
        if settings.image:
            return "to compare a mask with its image, both are bytes of files; leave image out"
        return (
            "" if is_number(array_element(kind, settings.shape)) else "it takes bytes, or arrays of integers, flat or nested like the shape"
        )

    def column(self, name: str, role: Role) -> TensorColumn:
        return TensorColumn(name=name, dtype="uint8", shape=self.settings.shape, role=role, cardinality=len(self.settings.classes))

    @property
    def classes(self) -> tuple[str, ...]:
        return self.settings.classes

    def encode(self, *inputs: pa.Array) -> pa.Array:
        if not is_bytes(inputs[0].type):
            elements, has_shape = flatten_arrays(inputs[0], self.settings.shape)
            classes, has_class = self._classify(numbers(elements))
            return scatter_arrays(classes, ~has_class, has_shape, self.settings.shape)
        return super().encode(*inputs)

    def fault(self, *values: Any) -> str:
        return super().fault(*values) if isinstance(values[0], bytes) else ""

    def decode(self, values: np.ndarray) -> np.ndarray:
        """The values of the files."""
        return self._values[values.astype(np.int64)]

    @property
    def _values(self) -> np.ndarray:
        return np.array(self.settings.values or range(len(self.settings.classes)), np.int64)

    def read(self, content: bytes | None, image: bytes | None = None) -> np.ndarray:
        if content is None:
            raise UnreadableError("")
        if len(self.settings.shape) == 3 and len(content) != prod(self.settings.shape):
            volume = read_nifti(content)
            if self.settings.image:
                _check_place(volume, image)
            classes = self._check_classes(resample(volume, self.settings.spacing, is_linear=False).values)
            return centre(classes, self.settings.shape)
        if len(self.settings.shape) == 3 or (len(content) == prod(self.settings.shape) and not content.startswith(_PNG)):
            return self._check_classes(np.frombuffer(content, np.uint8).reshape(self.settings.shape))
        return self._picture(content, image)

    def _picture(self, content: bytes, image: bytes | None) -> np.ndarray:
        """A mask as its image is shown. Raises UnreadableError if sizes differ, or do not tell which of the image's pixels it is for."""
        values, is_turned = read_values(content)
        if self.settings.image:
            frame, size = read_frame(image), (values.shape[1], values.shape[0])
            if size != frame.shown and (is_turned or not frame.fits(size)):
                raise UnreadableError(f"it has {extent_text(size)} pixels, but its image {extent_text(frame.shown)}")
            if not is_turned and frame.is_stored(size, ""):
                values = turn(values, frame.orientation)
        height, width = self.settings.shape
        if values.shape != (height, width):
            if not self.settings.resize:
                raise UnreadableError(f"it has {values.shape[1]}x{values.shape[0]} pixels, and not {width}x{height}")
            # The pixel whose middle is nearest, as Pillow's NEAREST has it.
            rows, columns = (np.arange(height) + 0.5) * values.shape[0] / height, (np.arange(width) + 0.5) * values.shape[1] / width
            values = values[rows.astype(np.int64)][:, columns.astype(np.int64)]
        return self._check_classes(values)

    def _check_classes(self, values: np.ndarray) -> np.ndarray:
        classes, has_class = self._classify(values)
        if not has_class.all():
            other_value = values[~has_class][0]
            raise UnreadableError(f"it has the value {other_value:g}, which is none of {self._values.tolist()}")
        return classes

    def _classify(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The class of each value, uint8, and whether it has one; both of the shape of the values."""
        order = np.argsort(self._values)
        ordered = self._values[order]
        places = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
        return order[places].astype(np.uint8), ordered[places] == values


def read_values(content: bytes) -> tuple[np.ndarray, bool]:
    """The values of a mask in a PNG file, shape (height, width), as viewers show it, and whether its own tag has turned it.

    Raises UnreadableError if it is no such file, is damaged, or has colours.
    """
    values, turned_by = read_picture(content, ("PNG",), lambda picture: (_grey_values(picture), orientation(picture)))
    return turn(values, turned_by), turned_by != UPRIGHT


def _grey_values(picture: Any) -> np.ndarray:
    """Grey values as the file has them, or palette indices, shape (height, width). A file of one bit has 0 and 1."""
    if picture.mode not in _GREY:
        raise UnreadableError(f"it has colours ({picture.mode}), not one number for each pixel")
    # Pillow stretches grey values of two and of four bits to eight.
    stretched_by = _STRETCHED.get(str(picture.tile[0][3]) if picture.tile else "", 1)
    return np.asarray(picture).astype(np.int64) // stretched_by


def _check_place(volume: Voxels, image: bytes | None) -> None:
    """Raise UnreadableError if a volume's image has another size or place."""
    try:
        other_volume = read_nifti(image or b"")
    except UnreadableError as error:
        raise UnreadableError(f"of its image: {error}") from error
    if other_volume.values.shape != volume.values.shape:
        sizes = ["x".join(map(str, compared.values.shape)) for compared in (volume, other_volume)]
        raise UnreadableError(f"it has {sizes[0]} voxels, but its image {sizes[1]}")
    if not np.allclose(other_volume.affine, volume.affine, rtol=0, atol=0.1 * min(volume.spacing)):
        raise UnreadableError("its orientation or place is another than its image's")


class Volume(FileEncoder["VolumeSettings"]):
    """Floats of shape (1, right, front, up) from NIfTI files. Files that `read_nifti` cannot read are refused, and those with NaN, ±∞ or
    numbers beyond the dtype."""

    @classmethod
    def refusal(cls, settings: VolumeSettings, kind: pa.DataType) -> str:
        if not is_bytes(kind):
            return "it takes the bytes of NIfTI files, as from the formats binaryFile and tar"
        return "" if has_nibabel() else MISSING

    def column(self, name: str, role: Role) -> TensorColumn:
        return TensorColumn(name=name, dtype=self.settings.dtype, shape=(1, *self.settings.shape), role=role)

    def example(self, kind: pa.DataType) -> Any:
        import nibabel  # noqa: PLC0415, only who reads volumes has it installed

        return nibabel.Nifti1Image(np.zeros(self.settings.shape, np.uint8), np.eye(4)).to_bytes()

    def read(self, content: bytes | None) -> np.ndarray:
        if content is None:
            raise UnreadableError("")
        values = resample(read_nifti(content), self.settings.spacing, is_linear=True).values
        if not np.isfinite(values).all():
            raise UnreadableError("it has NaN or ±∞")
        if self.settings.normalize == "z_score":
            centred = values - values.mean(dtype=np.float64).astype(np.float32)
            deviation = float(np.sqrt(np.square(centred, dtype=np.float64).mean()))
            values = centred / np.float32(deviation or 1.0)
        with np.errstate(over="ignore"):
            stored = centre(values, self.settings.shape).astype(self.settings.dtype)
        if not np.isfinite(stored).all():
            raise UnreadableError(f"it has numbers beyond {self.settings.dtype}")
        return stored[np.newaxis]
