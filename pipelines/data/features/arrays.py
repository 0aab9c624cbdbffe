"""Encoders of arrays of numbers: identity with a shape, scale, image."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from io import BytesIO
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from pipelines.data.features.base import MOMENTS, Encoder, Input, tensors_with_nulls
from pipelines.data.features.media_files import JPEG, PNG, UPRIGHT, orientation, picture_fault, turn
from pipelines.data.features.numbers import identity_dtype
from pipelines.data.features.raw import is_list, is_number, numbers
from pipelines.data.versions.schema import Role, TensorColumn

if TYPE_CHECKING:
    from pipelines.config.features.arrays import ImageSettings, ScaleSettings
    from pipelines.config.features.numbers import IdentitySettings

# Pillow's modes by number of channels.
MODES = {1: "L", 3: "RGB", 4: "RGBA"}
# Limits the memory for one image: a small file may declare any number of pixels.
MAX_PIXELS = 64 * 2**20


class Array(Encoder["IdentitySettings"]):
    """`identity` for a column of arrays. State: `dtype`. Rows with another shape, or that contain NULL, NaN or ±∞, are refused."""

    placeholder = {"dtype": "float32"}

    @classmethod
    def refusal(cls, settings: IdentitySettings, kind: pa.DataType) -> str:
        if not is_number(array_element(kind, settings.shape)):
            return "with a shape it takes arrays of numbers, flat or nested like the shape; remove the shape for single numbers"
        return "" if settings.impute == "none" else "it does not impute elements of arrays; COALESCE them in the query"

    @classmethod
    def fit(cls, settings: IdentitySettings, inputs: Sequence[Input]) -> dict[str, Any]:
        return {"dtype": identity_dtype(array_element(inputs[0].type, settings.shape))}

    def column(self, name: str, role: Role) -> TensorColumn:
        return TensorColumn(name=name, dtype=self.state["dtype"], shape=self.settings.shape, role=role)

    def encode(self, *inputs: pa.Array) -> pa.Array:
        elements, has_shape = flatten_arrays(inputs[0], self.settings.shape)
        if types.is_integer(elements.type) and self.state["dtype"] != "float32":
            values, missing = elements.fill_null(0).to_numpy(zero_copy_only=False), elements.is_null().to_numpy(zero_copy_only=False)
        else:
            with np.errstate(over="ignore"):
                values = numbers(elements).astype(np.float32)
            missing = ~np.isfinite(values)
            values[missing] = 0
        return scatter_arrays(values.astype(self.state["dtype"]), missing, has_shape, self.settings.shape)


class Scale(Encoder["ScaleSettings"]):
    """Subtracts a mean and divides by a deviation for each entry of the last axis. Rows with another shape, or with results out of the
    range of float32, are refused. State: `mean` and `deviation`, unless the settings have them."""

    @classmethod
    def needs(cls, settings: ScaleSettings) -> frozenset[str]:
        return frozenset({MOMENTS}) if settings.moments_of else frozenset()

    @classmethod
    def refusal(cls, settings: ScaleSettings, kind: pa.DataType) -> str:
        return "" if is_number(array_element(kind, settings.shape)) else "it takes arrays of numbers, flat or nested like the shape"

    @classmethod
    def learning_refusal(cls, settings: ScaleSettings, kind: pa.DataType) -> str:
        if not settings.moments_of:
            return cls.refusal(settings, kind)
        return "" if is_number(kind) else "it is fitted on numbers; name columns of single numbers in moments_of"

    @classmethod
    def fit(cls, settings: ScaleSettings, inputs: Sequence[Input]) -> dict[str, Any]:
        if not settings.moments_of:
            return {}
        moments = [column.moments for column in inputs]
        return {"mean": [column.mean for column in moments], "deviation": [column.deviation or 1.0 for column in moments]}

    def column(self, name: str, role: Role) -> TensorColumn:
        return TensorColumn(name=name, dtype="float32", shape=self.settings.shape, role=role)

    def encode(self, *inputs: pa.Array) -> pa.Array:
        elements, has_shape = flatten_arrays(inputs[0], self.settings.shape)
        mean, deviation = self._moments
        exact = (numbers(elements).reshape(-1, self.settings.shape[-1]) - mean) / deviation
        with np.errstate(over="ignore"):
            scaled = exact.astype(np.float32).ravel()
        missing = ~np.isfinite(scaled)
        scaled[missing] = 0
        return scatter_arrays(scaled, missing, has_shape, self.settings.shape)

    def decode(self, values: np.ndarray) -> np.ndarray:
        mean, deviation = self._moments
        return values.astype(np.float64) * deviation + mean

    @property
    def _moments(self) -> tuple[Sequence[float], Sequence[float]]:
        """Mean and deviation of each entry of the last axis."""
        settings = self.settings
        return self.state.get("mean", settings.mean), self.state.get("deviation", settings.deviation)


class Image(Encoder["ImageSettings"]):
    """uint8 pixels, channels first, from bytes or arrays of that shape, or from PNG and JPEG files, which are turned as viewers show them,
    converted to this number of channels and resized (bilinear). Other bytes, and numbers other than integers from 0 to 255, are refused."""

    @classmethod
    def refusal(cls, settings: ImageSettings, kind: pa.DataType) -> str:
        if is_bytes(kind) or is_number(array_element(kind, settings.shape)):
            return ""
        return "it takes bytes, or arrays of numbers, flat or nested like the shape"

    def column(self, name: str, role: Role) -> TensorColumn:
        return TensorColumn(name=name, dtype="uint8", shape=self.settings.shape, role=role)

    def encode(self, *inputs: pa.Array) -> pa.Array:
        if not is_bytes(inputs[0].type):
            elements, has_shape = flatten_arrays(inputs[0], self.settings.shape)
            values = numbers(elements)
            missing = ~((values >= 0) & (values <= 255) & (values == np.floor(values)))
            return scatter_arrays(np.where(missing, 0, values).astype(np.uint8), missing, has_shape, self.settings.shape)
        rows = [self._pixels(value.as_py()) for value in inputs[0]]
        encoded = np.zeros((len(rows), *self.settings.shape), np.uint8)
        for row, pixels in enumerate(rows):
            if pixels is not None:
                encoded[row] = pixels
        return tensors_with_nulls(encoded, np.array([pixels is None for pixels in rows], bool))

    def fault(self, *values: Any) -> str:
        formats = ("PNG", "JPEG", f"{prod(self.settings.shape):,} bytes of pixels")
        return f"it {picture_fault(values[0], MAX_PIXELS, formats)}" if isinstance(values[0], bytes) else ""

    def _pixels(self, content: bytes | None) -> np.ndarray | None:
        """uint8 of the shape of the column; None if the bytes are neither pixels nor a readable PNG or JPEG file."""
        if content is None:
            return None
        is_png, is_jpeg = content.startswith(PNG), content.startswith(JPEG)
        if len(content) == prod(self.settings.shape) and not (is_png or (is_jpeg and content.endswith(b"\xff\xd9"))):
            return np.frombuffer(content, np.uint8).reshape(self.settings.shape)
        channels, height, width = self.settings.shape
        if not (is_png or is_jpeg) or channels not in MODES:
            return None
        import PIL.Image  # noqa: PLC0415, only for pictures in files

        try:
            PIL.Image.open(BytesIO(content), formats=("PNG", "JPEG")).verify()  # checks the checksums of a PNG, which load ignores
            with PIL.Image.open(BytesIO(content), formats=("PNG", "JPEG")) as image:
                if image.width * image.height > MAX_PIXELS:
                    return None
                image.load()
                is_16_bits = image.mode.startswith("I")  # grey values that Pillow would clip at 255
                grey = (np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8) if is_16_bits else None
                eight_bits = (image if grey is None else PIL.Image.fromarray(grey)).convert(MODES[channels])
                if (turned_by := orientation(image)) != UPRIGHT:
                    eight_bits = PIL.Image.fromarray(turn(np.asarray(eight_bits), turned_by))
        except (OSError, SyntaxError, ValueError, EOFError, struct.error, PIL.Image.DecompressionBombError):
            return None  # Pillow raises these for truncated or altered files
        resized = eight_bits if eight_bits.size == (width, height) else eight_bits.resize((width, height), PIL.Image.Resampling.BILINEAR)
        return np.asarray(resized).reshape(height, width, channels).transpose(2, 0, 1)


def is_bytes(kind: pa.DataType) -> bool:
    return types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)


def array_element(kind: pa.DataType, shape: tuple[int, ...]) -> pa.DataType:
    """Type of the elements of an array column that is flat or nested as deeply as the shape; null for any other nesting."""
    depth = 0
    while is_list(kind):
        kind, depth = kind.value_type, depth + 1
    return kind if depth in (1, len(shape)) else pa.null()


def flatten_arrays(values: pa.Array, shape: tuple[int, ...]) -> tuple[pa.Array, np.ndarray]:
    """The concatenated elements of the rows that have the shape, and a mask of these rows."""
    nested = is_list(values.type.value_type)
    has_shape = pc.list_value_length(values).fill_null(-1).to_numpy(zero_copy_only=False) == (shape[0] if nested else prod(shape))
    elements = values.filter(pa.array(has_shape)).flatten()
    if not nested:
        return elements, has_shape
    elements, inner = flatten_arrays(elements, shape[1:])
    inner_has_shape = inner.reshape(-1, shape[0]).all(axis=1)
    in_shaped_rows = np.repeat(np.repeat(inner_has_shape, shape[0])[inner], prod(shape[1:]))
    has_shape[has_shape] = inner_has_shape
    return elements.filter(pa.array(in_shaped_rows)), has_shape


def scatter_arrays(elements: np.ndarray, missing: np.ndarray, has_shape: np.ndarray, shape: tuple[int, ...]) -> pa.Array:
    """Tensors from the elements of the rows that have the shape; other rows, and rows with a missing element, are refused."""
    encoded = np.zeros((len(has_shape), prod(shape)), elements.dtype)
    encoded[has_shape] = elements.reshape(-1, prod(shape))
    refused = ~has_shape
    refused[has_shape] = missing.reshape(-1, prod(shape)).any(axis=1)
    return tensors_with_nulls(encoded.reshape(-1, *shape), refused)
