"""Turns pictures to how viewers show them: cameras store pixels as the sensor read them, with a tag that says how they were held.

The tag is EXIF's orientation (CIPA DC-008, tag 274), of JPEG and of PNG files. The script of an export has this code too, so it imports
NumPy alone.
"""

import struct
from typing import Any

import numpy as np

_TAG = 274
UPRIGHT = 1


def orientation(picture: Any) -> int:
    """EXIF's orientation of an open picture of Pillow, 1 to 8; 1, which turns nothing, without a tag or with a damaged one."""
    try:
        number = picture.getexif().get(_TAG, UPRIGHT)
    except (OSError, SyntaxError, ValueError, EOFError, KeyError, TypeError, struct.error):  # what Pillow raises for a damaged tag
        return UPRIGHT
    return number if isinstance(number, int) and UPRIGHT <= number <= 8 else UPRIGHT


def turn(pixels: np.ndarray, number: int) -> np.ndarray:
    """Stored pixels as viewers show them: shape (height, width, …), or (width, height, …) for orientations from 5 on."""
    turned = pixels.swapaxes(0, 1) if number >= 5 else pixels
    turned = turned[::-1] if number in (3, 4, 7, 8) else turned
    return turned[:, ::-1] if number in (2, 3, 6, 7) else turned


def shown_size(size: tuple[int, int], number: int) -> tuple[int, int]:
    """Width and height as viewers show them."""
    return size[::-1] if number >= 5 else size
