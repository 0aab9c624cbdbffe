"""Says what the bytes of a file are, for a reason why an encoder refuses them, and turns pictures to how viewers show them.

Cameras store pixels as the sensor read them, with a tag that says how they were held: EXIF's orientation (CIPA DC-008, tag 274), of JPEG
and of PNG files. The script of an export has this code too, so it imports NumPy alone, and Pillow where a picture is opened."""

import re
import struct
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np

PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
_BEGINNINGS = {
    rb"\x89PNG\r\n\x1a\n": "a PNG picture",
    rb"\xff\xd8\xff": "a JPEG picture",
    rb"GIF8": "a GIF picture",
    rb"BM": "a BMP picture",
    rb"II\*\x00|MM\x00\*": "a TIFF picture",
    rb"RIFF....WEBP": "a WebP picture",
    rb"....ftyp(avif|heic|heix|mif1)": "an HEIF picture",
    rb"....ftyp": "an MP4 file",
    rb"\s*<svg": "an SVG picture",
    rb"RIFF....WAVE|RF64....WAVE": "a WAV file",
    rb"RIFX": "a WAV file with its bytes in another order (RIFX)",
    rb"RIFF....AVI ": "an AVI video",
    rb"fLaC": "a FLAC file",
    rb"OggS": "an Ogg file",
    rb"ID3|\xff[\xe2\xe3\xf2\xf3\xfa\xfb]": "an MP3 file",
    rb"FORM....AIF": "an AIFF file",
    rb"\.snd": "an AU file",
    rb"\x1f\x8b": "a gzip file",
    rb"PK\x03\x04": "a ZIP archive",
    rb"%PDF": "a PDF document",
    rb"\s*<(!doctype html|html)": "a page of HTML",
    rb"version https://git-lfs": "a pointer of Git LFS, not the file itself",
}
"""What a file is that begins so."""
_TAG = 274
UPRIGHT = 1


class UnreadableError(ValueError):
    """Reason why a file cannot be encoded, in a few words."""


def file_kind(content: bytes) -> str:
    """The kind of a file by its first bytes, such as `a GIF picture`."""
    if not content:
        return "empty"
    for beginning, name in _BEGINNINGS.items():
        if re.match(beginning, content, re.DOTALL | re.IGNORECASE):
            return name
    return f"of an unknown kind (first bytes {', '.join(map(str, content[:4]))})"


def picture_fault(content: bytes, most_pixels: int, formats: Sequence[str]) -> str:
    """Why bytes are no picture of so many pixels at most, as what follows `it`. They were found to be none. `formats` names what is
    read, such as PNG and JPEG."""
    name = "PNG" if content.startswith(PNG) else "JPEG" if content.startswith(JPEG) else ""
    if name not in formats:
        return f"is {file_kind(content)}, not {' or '.join(formats)}"
    from PIL import Image  # noqa: PLC0415, only for pictures in files

    try:
        with Image.open(BytesIO(content), formats=(name,)) as picture:
            width, height = picture.size
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError):
        width = height = 0
    if width * height > most_pixels:
        return f"has {width}x{height} pixels, more than {most_pixels:,}"
    has_end = b"IEND" in content[-64:] if name == "PNG" else content.rstrip(b"\0").endswith(b"\xff\xd9")
    return f"is a damaged {name} file" if has_end else f"is a truncated {name} file, without its end"


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
