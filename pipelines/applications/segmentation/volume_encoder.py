"""Encoder of volumes, such as those of computed tomography and magnetic resonance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pipelines.applications.segmentation.nifti import MISSING, has_nibabel, read_nifti
from pipelines.applications.segmentation.resampling import centre, resample
from pipelines.data.features.arrays import is_bytes
from pipelines.data.features.base import Encoder, tensors_with_nulls
from pipelines.data.features.media.file_kinds import UnreadableError
from pipelines.data.versions.schema import Role, TensorColumn

if TYPE_CHECKING:
    from pipelines.applications.segmentation.settings import VolumeSettings


class Volume(Encoder["VolumeSettings"]):
    """Floats of shape (1, right, front, up) from NIfTI files. Files that `read_nifti` cannot read are refused, and those with NaN, ±∞ or
    numbers beyond the dtype."""

    @classmethod
    def refusal(cls, settings: VolumeSettings, kind: pa.DataType) -> str:
        if not is_bytes(kind):
            return "it takes the bytes of NIfTI files, as from the formats binaryFile and tar"
        return "" if has_nibabel() else MISSING

    def column(self, name: str, role: Role) -> TensorColumn:
        return TensorColumn(name=name, dtype=self.settings.dtype, shape=(1, *self.settings.shape), role=role)

    def encode(self, *inputs: pa.Array) -> pa.Array:
        encoded = np.zeros((len(inputs[0]), 1, *self.settings.shape), self.settings.dtype)
        refused = np.zeros(len(inputs[0]), bool)
        for row, value in enumerate(inputs[0]):
            try:
                encoded[row, 0] = self._values(value.as_py())
            except UnreadableError:
                refused[row] = True
        return tensors_with_nulls(encoded, refused)

    def fault(self, *values: Any) -> str:
        try:
            self._values(values[0])
        except UnreadableError as error:
            return str(error)
        return ""

    def example(self, kind: pa.DataType) -> Any:
        import nibabel  # noqa: PLC0415, only who reads volumes has it installed

        return nibabel.Nifti1Image(np.zeros(self.settings.shape, np.uint8), np.eye(4)).to_bytes()

    def _values(self, content: bytes | None) -> np.ndarray:
        """The encoded volume, of the shape of the settings. Raises UnreadableError with the reason why there is none."""
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
        return stored
