"""Reads pictures that annotations belong to, and decides which of a turned picture's pixels an annotation is for."""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Any, TypeVar

import PIL.Image

from pipelines.data.features.arrays import MAX_PIXELS
from pipelines.data.features.media_files import UPRIGHT, UnreadableError, orientation, picture_fault, shown_size

FAULTS = (OSError, SyntaxError, ValueError, EOFError, struct.error, PIL.Image.DecompressionBombError)
"""What Pillow raises for truncated or altered files."""
Size = tuple[int, int]
"""Width and height."""
_Reading = TypeVar("_Reading")


@dataclass(frozen=True)
class Frame:
    """The pixels of a picture."""

    stored: Size
    """As the file has them."""
    orientation: int
    """EXIF's: how the stored pixels are turned to be shown."""

    @property
    def shown(self) -> Size:
        return shown_size(self.stored, self.orientation)

    def fits(self, size: Size) -> bool:
        """Whether an annotation of this size can be for the stored or for the shown pixels."""
        return size in (self.stored, self.shown)

    def is_stored(self, size: Size | None, remedy: str) -> bool:
        """Whether an annotation of this size is for the stored pixels, and not for the shown ones. Some tools draw on those, and some on
        these. Raises UnreadableError if the size does not tell: it is None, or both have the same. `remedy` is what else could tell."""
        if self.orientation == UPRIGHT:
            return False
        if size is None or self.stored == self.shown:
            reason = "it has no size" if size is None else f"both have {extent_text(self.stored)} pixels"
            raise UnreadableError(
                f"its image is turned to be shown (EXIF orientation {self.orientation}), and nothing tells whether it is for the stored or "
                f"for the shown pixels, since {reason}; {remedy}store the image upright, without the tag"
            )
        return size == self.stored


def read_frame(image: bytes | None) -> Frame:
    """The frame of an annotation's image. Raises UnreadableError if it is no PNG or JPEG file, is damaged, or too large."""
    return read_picture(image or b"", ("PNG", "JPEG"), lambda picture: Frame(picture.size, orientation(picture)), "its image")


def read_picture(content: bytes, formats: tuple[str, ...], read: Callable[[Any], _Reading], subject: str = "it") -> _Reading:
    """Open a picture, and return a reading of it. Raises UnreadableError if bytes are none of the formats, are damaged, or too large."""
    try:
        PIL.Image.open(BytesIO(content), formats=formats).verify()
        with PIL.Image.open(BytesIO(content), formats=formats) as picture:
            if picture.width * picture.height > MAX_PIXELS:
                raise UnreadableError(f"{subject} has {extent_text(picture.size)} pixels, more than {MAX_PIXELS:,}")
            return read(picture)
    except UnreadableError:
        raise
    except FAULTS as error:
        raise UnreadableError(f"{subject} {picture_fault(content, MAX_PIXELS, formats)}") from error


def extent_text(size: Size | None) -> str:
    return "x".join(map(str, size or ()))
