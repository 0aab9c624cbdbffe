"""Encoders of arrays of numbers and of pictures."""

from collections.abc import Mapping
from io import BytesIO
from math import prod
from typing import Any

import numpy as np

from pipelines.data.features.media.file_kinds import JPEG, PNG, picture_fault
from pipelines.data.features.orientation import UPRIGHT, orientation, turn
from pipelines.serving.export.standalone.columns import FAULTS, Column, encoder

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_MAX_PIXELS = 64 * 2**20


@encoder("array")
def array(settings: Mapping[str, Any], state: Mapping[str, Any], column: Column) -> tuple[np.ndarray, np.ndarray]:
    """`identity` with a shape. Integers of up to 64 bits stay exact."""
    shape, dtype = tuple(settings["shape"]), state["dtype"]
    encoded, refused = np.zeros((len(column.values), *shape), dtype), np.zeros(len(column.values), bool)
    for row, value in enumerate(column.values):
        elements = reshape(value, shape)
        with np.errstate(over="ignore"):
            values = (
                None if elements is None else elements.astype(np.float64).astype(dtype) if dtype == "float32" else elements.astype(dtype)
            )
        refused[row] = values is None or not np.isfinite(values).all()
        if not refused[row]:
            encoded[row] = values
    return encoded + (0.0 if dtype == "float32" else 0), refused


@encoder("scale")
def scale(settings: Mapping[str, Any], state: Mapping[str, Any], column: Column) -> tuple[np.ndarray, np.ndarray]:
    shape, moments = tuple(settings["shape"]), {**settings, **state}
    encoded, refused = np.zeros((len(column.values), *shape), np.float32), np.zeros(len(column.values), bool)
    for row, value in enumerate(column.values):
        elements = reshape(value, shape)
        if elements is not None:
            with np.errstate(over="ignore"):
                encoded[row] = (elements.astype(np.float64) - moments["mean"]) / moments["deviation"]
        refused[row] = elements is None or not np.isfinite(encoded[row]).all()
    encoded[refused] = 0
    return encoded, refused


@encoder("image")
def image(settings: Mapping[str, Any], state: Mapping[str, Any], column: Column) -> tuple[np.ndarray, np.ndarray]:
    """uint8 pixels, channels first, from bytes or arrays of that shape; from PNG and JPEG files where Pillow is installed."""
    shape = tuple(settings["shape"])
    encoded, refused = np.zeros((len(column.values), *shape), np.uint8), np.zeros(len(column.values), bool)
    for row, value in enumerate(column.values):
        pixels = _pixels(value, shape) if isinstance(value, bytes) else _pixel_bytes(reshape(value, shape))
        refused[row] = pixels is None
        if pixels is not None:
            encoded[row] = pixels
    return encoded, refused


def reshape(value: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """A list of numbers, flat or nested, as an array of the shape; None if it has another one, or contains NULL."""
    if value is None:
        return None
    try:
        elements = np.array(value)
    except ValueError:  # lists of unequal lengths
        return None
    if elements.dtype == object and elements.size and not any(element is None for element in elements.flat):
        elements = elements.astype(np.float64)  # decimals
    if elements.dtype == object or elements.shape not in (shape, (prod(shape),)):
        return None
    return elements.reshape(shape)


def _pixel_bytes(elements: np.ndarray | None) -> np.ndarray | None:
    if elements is None or not ((elements >= 0) & (elements <= 255) & (elements == np.floor(elements))).all():
        return None
    return elements.astype(np.uint8)


def _pixels(content: bytes, shape: tuple[int, ...]) -> np.ndarray | None:
    is_png, is_jpeg = content.startswith(PNG), content.startswith(JPEG)
    if len(content) == prod(shape) and not (is_png or (is_jpeg and content.endswith(b"\xff\xd9"))):
        return np.frombuffer(content, np.uint8).reshape(shape)
    return _decode_picture(content, shape) if (is_png or is_jpeg) and shape[0] in _MODES else None


def _decode_picture(content: bytes, shape: tuple[int, ...]) -> np.ndarray | None:
    from PIL import Image  # noqa: PLC0415, only for pictures in files

    try:
        Image.open(BytesIO(content), formats=("PNG", "JPEG")).verify()
        with Image.open(BytesIO(content), formats=("PNG", "JPEG")) as file:
            if file.width * file.height > _MAX_PIXELS:
                return None
            file.load()
            is_wide = file.mode.startswith("I")  # 16 bits, which Pillow would clip
            eight_bits = Image.fromarray((np.asarray(file).astype(np.uint32) >> 8).astype(np.uint8)) if is_wide else file
            picture = eight_bits.convert(_MODES[shape[0]])
            if (turned_by := orientation(file)) != UPRIGHT:
                picture = Image.fromarray(turn(np.asarray(picture), turned_by))
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError):
        return None
    channels, height, width = shape
    if picture.size != (width, height):
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(picture).reshape(height, width, channels).transpose(2, 0, 1)


def _fault(settings: Mapping[str, Any], value: Any) -> str:
    formats = ("PNG", "JPEG", f"{prod(settings['shape']):,} bytes of pixels")
    return f"it {picture_fault(value, _MAX_PIXELS, formats)}" if isinstance(value, bytes) else ""


FAULTS["image"] = _fault
