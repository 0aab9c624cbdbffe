"""Drafts the config for a folder of images."""

import io
import math
from collections import Counter
from dataclasses import dataclass
from statistics import median

import PIL.Image

from pipelines.config.messages.words import show_count
from pipelines.data.features.media_files import orientation, shown_size
from pipelines.errors import ConfigError
from pipelines.init.draft import Draft, Request
from pipelines.init.media.class_folders import (
    Learning,
    batch_rows,
    draft_files,
    epochs_for,
    find_classes,
    train_rows,
)
from pipelines.init.media.folder_contents import IMAGES, SampledFiles, find_file_table, list_contents

MOST_PIXELS = 60_000_000
"""The most pixels of the sample that are decoded; of further images, only the checksums are."""
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


def draft_pictures(request: Request) -> Draft | None:
    """Draft the config for images in class folders, or with the class in their names. None if few of the files are images."""
    contents = list_contents(request.data)
    table = find_file_table(contents, "images", IMAGES)
    if table is None:
        return None
    classes = find_classes(request.data, table.files)
    look = look_at_images(request.data, table)
    rows = train_rows(classes.train_files or classes.files, classes.splits)
    count = f"{len(look.unreadable)} of {look.opened}"
    learning = Learning(
        "image",
        "image",
        {"encoder": "image", "shape": list(look.shape)},
        f"channels, height, width: the median of {show_count(look.opened, 'image')} is {look.height} x {look.width}"
        + (f", scaled to {LARGEST_SIDE} for the small network" if max(look.height, look.width) > LARGEST_SIDE else ""),
        {"kind": "vision", "network": "small", "dropout": 0.4},
        image_training(rows),
        len(look.unreadable) / look.opened,
        tuple(f"{count} images cannot be decoded, such as {name}: quarantined" for name in look.unreadable[:1]),
    )
    return draft_files(request, contents, classes, table, "content", learning)


def image_training(rows: int) -> dict[str, object]:
    """`train` for the network `small` and so many rows."""
    batch = batch_rows(rows, 128 if rows >= 10_000 else 64)
    settings = {"optimizer": "adam", "lr": 2e-3, "weight_decay": 0, "schedule": "one_cycle"}
    return {"workers": 2, "epochs": epochs_for(rows), "global_batch": batch, **settings}


def look_at_images(path: str, table: SampledFiles) -> Look:
    """The shape that suits a sample of the images. Raises ConfigError if too many of it cannot be decoded."""
    sizes, modes, unreadable = [], Counter[str](), []
    sample, pixels = table.sample, 0
    for file in sample:
        size_and_mode = _decode(table.read(file), pixels < MOST_PIXELS)
        if size_and_mode is None:
            unreadable.append(file.name)
            continue
        (width, height), mode = size_and_mode
        pixels += width * height
        sizes.append((height, width))
        modes[mode] += 1
    if len(unreadable) > MOST_UNREADABLE * len(sample):
        raise ConfigError(
            f"{path}: {len(unreadable)} of {len(sample)} images cannot be decoded, such as {unreadable[0]}; "
            "get the files again, or remove those"
        )
    height, width = (math.ceil(median(side)) for side in zip(*sizes, strict=True))
    scale = min(1.0, LARGEST_SIDE / max(height, width))
    channels = 1 if all(mode in _GREY for mode in modes) else 3
    return Look((channels, max(4, round(height * scale)), max(4, round(width * scale))), height, width, len(sample), tuple(unreadable))


def _decode(data: bytes, with_pixels: bool) -> tuple[tuple[int, int], str] | None:
    """Width, height and mode of an image; None if it is not one that the encoder reads."""
    try:
        PIL.Image.open(io.BytesIO(data), formats=("PNG", "JPEG")).verify()
        with PIL.Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as image:
            if with_pixels:
                image.load()
            return shown_size(image.size, orientation(image)), image.mode
    except (OSError, SyntaxError, ValueError, EOFError, PIL.Image.DecompressionBombError):
        return None
