"""Drafts the config for a folder of images."""

import io
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import PIL.Image

from pipelines.errors import ConfigError
from pipelines.init.classes import find_classes
from pipelines.init.contents import IMAGES, FolderContents, FoundFile, check_kinds, list_contents, refuse_unreadable, spread
from pipelines.init.draft import Draft, Request
from pipelines.init.folder_tables import Learning, batch_rows, draft_files, epochs_for, train_rows

MOST_FILES, MOST_PIXELS = 300, 60_000_000
"""The most images that are opened, and that are decoded."""
LARGEST_SIDE = 64
"""For the network `small`, whose hidden layer has weights for each pixel."""
MOST_UNREADABLE = 0.2
_GREY = ("1", "L", "I", "I;16", "LA")


@dataclass(frozen=True)
class Look:
    """A sample of the images."""

    shape: tuple[int, int, int]
    """Channels, height, width that suit most of them."""
    height: int
    width: int
    opened: int
    unreadable: tuple[str, ...]

    @property
    def assumptions(self) -> tuple[str, ...]:
        count = f"{len(self.unreadable)} of {self.opened} images"
        return tuple(f"{count} cannot be decoded, such as {name}: quarantined" for name in self.unreadable[:1])


def draft_pictures(request: Request) -> Draft | None:
    """Draft the config for images in class folders, or with the class in their names. None if few of the files are images."""
    contents = list_contents(request.data)
    images = contents.select_endings(IMAGES)
    refuse_unreadable(contents)
    if 2 * len(images) < len(contents.files) or contents.is_file:
        return None
    check_kinds(contents, "images", IMAGES)
    classes = find_classes(request.data, images)
    look = look_at_images(contents, images)
    rows = train_rows(classes.train_files or classes.files, classes.splits)
    endings = sorted({Path(file.name).suffix.removeprefix(".") for file in images})
    pattern = f"*.{endings[0]}" if len(endings) == 1 else f"*.{{{','.join(endings)}}}"
    options = {"recursiveFileLookup": True, "pathGlobFilter": pattern}
    learning = Learning(
        "images",
        "image",
        {"encoder": "image", "shape": list(look.shape)},
        f"channels, height, width: the median of {look.opened} images is {look.height} x {look.width}"
        + (f", scaled to {LARGEST_SIDE} for the small network" if max(look.height, look.width) > LARGEST_SIDE else ""),
        {"kind": "vision", "network": "small", "dropout": 0.4},
        image_training(rows),
        len(look.unreadable) / look.opened,
        tuple(
            f"{len(look.unreadable)} of {look.opened} images cannot be decoded, such as {name}: quarantined" for name in look.unreadable[:1]
        ),
    )
    table = {"format": "binaryFile", "path": request.data, "options": options}
    return draft_files(request, contents, classes, table, "content", learning)


def image_training(rows: int) -> dict[str, object]:
    """`train` for the network `small` and so many rows."""
    batch = batch_rows(rows, 128 if rows >= 10_000 else 64)
    settings = {"optimizer": "adam", "lr": 2e-3, "weight_decay": 0, "schedule": "one_cycle"}
    return {"workers": 2, "epochs": epochs_for(rows), "global_batch": batch, **settings}


def look_at_images(contents: FolderContents, images: Sequence[FoundFile]) -> Look:
    """The shape that suits a sample of the images. Raises ConfigError if too many of it cannot be decoded."""
    sizes, modes, unreadable = [], Counter[str](), []
    sample, pixels = spread(images, MOST_FILES), 0
    for file in sample:
        size_and_mode = _decode(contents.place(file), pixels < MOST_PIXELS)
        if size_and_mode is None:
            unreadable.append(file.name)
            continue
        (width, height), mode = size_and_mode
        pixels += width * height
        sizes.append((height, width))
        modes[mode] += 1
    if len(unreadable) > MOST_UNREADABLE * len(sample):
        raise ConfigError(
            f"{contents.path}: {len(unreadable)} of {len(sample)} images cannot be decoded, such as {unreadable[0]}; "
            "get the files again, or remove those"
        )
    height, width = (math.ceil(median(side)) for side in zip(*sizes, strict=True))
    scale = min(1.0, LARGEST_SIDE / max(height, width))
    channels = 1 if all(mode in _GREY for mode in modes) else 3
    return Look((channels, max(4, round(height * scale)), max(4, round(width * scale))), height, width, len(sample), tuple(unreadable))


def _decode(path: str, with_pixels: bool) -> tuple[tuple[int, int], str] | None:
    """Width, height and mode of an image; None if it is not one that the encoder reads."""
    try:
        data = Path(path).read_bytes()
        PIL.Image.open(io.BytesIO(data), formats=("PNG", "JPEG")).verify()
        with PIL.Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as image:
            if with_pixels:
                image.load()
            return image.size, image.mode
    except (OSError, SyntaxError, ValueError, EOFError, PIL.Image.DecompressionBombError):
        return None
