"""Drafts the config for images with masks of equal names. `volume_draft` finds pairs and values here too."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from typing import Any

import numpy as np

from pipelines.applications.segmentation.encoders import Mask, read_values
from pipelines.applications.segmentation.settings import MaskSettings
from pipelines.config.messages.words import show_count
from pipelines.data.features.media_files import UnreadableError
from pipelines.errors import ConfigError
from pipelines.init.draft import Draft, Request
from pipelines.init.media.class_folders import refuse_target
from pipelines.init.media.folder_contents import IMAGES, FolderContents, FoundFile, folder_table, list_contents, spread
from pipelines.init.media.images import (
    STEM,
    AnnotatedImages,
    AnnotatedRows,
    ChosenSettings,
    draft_annotated,
    files_in,
    image_choice,
    look_at_images,
    scale_size,
    train_settings,
)

MASK_FOLDER = re.compile("mask|label|annotation|segment", re.IGNORECASE)
MOST_MASKS = 100
"""The most masks that are read."""
LARGEST_SIDE, PATCH = 512, 256
"""Pixels of a side of an encoded image, and of a part that is trained on."""
_COUNTED_VALUES = 2**16
"""Values that differ by less are counted without sorting them."""
FilePair = tuple[FoundFile, FoundFile]
"""An image and its mask."""


@dataclass(frozen=True)
class MaskPairs:
    """The files of two folders."""

    pairs: tuple[FilePair, ...]
    """Sorted by name."""
    lone_images: tuple[str, ...]
    lone_masks: tuple[str, ...]
    """Names of images without a mask, and of masks without an image."""


def pair_files(images: Mapping[str, FoundFile], masks: Mapping[str, FoundFile]) -> MaskPairs:
    """The pairs of equal names, and the names that only one of the folders has. Both arguments are files by name."""
    return MaskPairs(
        tuple((images[name], masks[name]) for name in sorted(images.keys() & masks.keys())),
        tuple(sorted(images.keys() - masks.keys())),
        tuple(sorted(masks.keys() - images.keys())),
    )


def join_query(image_name: str, mask_name: str, masks: str, unit: str) -> str:
    """The query over the tables `images` and `masks`, with the columns `name`, `image` and the unit. The names are SQL over `path`."""
    return (
        f"SELECT name, images.content AS image, {masks}.content AS {unit}\n"
        f"FROM (SELECT {image_name} AS name, content FROM images) AS images\n"
        f"FULL OUTER JOIN (SELECT {mask_name} AS name, content FROM {masks}) AS {masks} USING (name)"
    )


@dataclass(frozen=True)
class MaskValues:
    """The values of a sample of masks."""

    counts: Counter[int]
    """Pixels by value."""
    shapes: tuple[tuple[int, ...], ...]
    """Of each mask that can be read."""

    @property
    def most_frequent(self) -> int:
        return min(self.counts, key=lambda value: (-self.counts[value], value))

    def shares(self, values: Iterable[int]) -> str:
        total = self.counts.total()
        return ", ".join(f"{value} in {self.counts[value] / total:.1%}" for value in values)


def count_values(
    path: str, masks: Iterable[tuple[str, bytes]], unit: str, read: Callable[[bytes], np.ndarray], remedy: str, most_values: int
) -> MaskValues:
    """Count the values of masks, given as names and contents, of which `read` makes whole numbers of any shape, or raises UnreadableError.

    `unit` is what a mask is called, and `remedy` what to do if none can be read. Raises ConfigError if the values cannot stand for
    classes, as more than `most_values` cannot."""
    counts, shapes, fault = Counter[int](), list[tuple[int, ...]](), ""
    for name, content in masks:
        try:
            values = read(content)
        except UnreadableError as error:
            fault = fault or f"{name}: {error}"
            continue
        least = int(values.min())
        if int(values.max()) - least < _COUNTED_VALUES:
            pixels = np.bincount(values.ravel() - least)
            counts.update({least + place: int(pixels[place]) for place in np.flatnonzero(pixels).tolist()})
        else:
            counts.update(dict(zip(*(numbers.tolist() for numbers in np.unique(values, return_counts=True)), strict=True)))
        shapes.append(values.shape)
    if not shapes:
        raise ConfigError(f"{path}: no {unit} can be read, such as {fault}; {remedy}")
    if not 2 <= len(counts) <= most_values:
        examples = ", ".join(map(str, sorted(counts)[:5]))
        raise ConfigError(
            f"{path}: {len(shapes)} {unit}s have {show_count(len(counts), 'value')}, such as {examples}, and 2 to "
            f"{most_values} can stand for classes; save {unit}s with a value for each class, without smoothed edges; if they "
            f"are no {unit}s, rename their folder"
        )
    return MaskValues(counts, tuple(shapes))


def name_classes(values: Iterable[int], background: int, names: Mapping[int, str] | None = None) -> dict[str, Any]:
    """The settings `classes` and `values`: the background, then the other values by size. A value without a name is
    `foreground` if it is the only one beside the background, else `value_N`."""
    foreground = sorted(set(values) - {background})
    default_names = {foreground[0]: "foreground"} if len(foreground) == 1 else {value: f"value_{value}" for value in foreground}
    classes = {background: "background", **default_names, **(names or {})}
    return {"classes": [classes[value] for value in (background, *foreground)], "values": [background, *foreground]}


def draft_masks(request: Request) -> Draft | None:
    """Draft the config for two folders of pictures, one with masks. None for other data. Raises ConfigError if masks have no classes."""
    contents = list_contents(request.data)
    folders = _find_folders(contents)
    if folders is None:
        return None
    refuse_target(request, "in the masks")
    images, masks = (folder_table(contents, folder, files_in(contents, folder, IMAGES), MOST_MASKS) for folder in folders)
    files = pair_files(*({file.stem: file for file in table.files} for table in (images, masks)))
    sample, rows = spread(files.pairs, MOST_MASKS), len(files.pairs)
    values = count_values(
        request.data,
        ((mask.name, masks.read(mask)) for _, mask in sample),
        "mask",
        lambda content: read_values(content)[0],
        "save masks as PNG files with a grey value for each class",
        most_values=30,  # edges that were smoothed have more
    )
    look = look_at_images(request.data, images)
    size = scale_size(look.height, look.width, LARGEST_SIDE)
    encoder = {"encoder": "mask", "shape": list(size), **name_classes(values.counts, values.most_frequent), "image": "image"}
    if set(values.shapes) != {size}:
        encoder["resize"] = True
    encoder_reason = f"values of {len(sample)} masks: {values.shares(encoder['values'])} of the pixels; the first class is the background"
    encode = Mask(MaskSettings(**encoder), {})
    faults = [encode.fault(masks.read(mask), images.read(image)) for image, mask in sample]
    background = f"the value {values.most_frequent} of masks is taken for the background, as the most frequent: classes begin with it"
    annotated = AnnotatedImages(
        noun="images",
        unit="mask",
        source={"tables": {"images": images.settings, "masks": masks.settings}, "query": join_query(STEM, STEM, "masks", "mask")},
        image=image_choice(look, (look.shape[0], *size), LARGEST_SIDE),
        annotation=ChosenSettings(encoder, encoder_reason),
        task=_choose_task(size),
        train=train_settings(rows, images=3_000, most_epochs=100, batch=4 if rows < 1_000 else 8, rate=3e-3),
        rows=AnnotatedRows(rows, len(sample), [f"mask: {fault}" for fault in faults if fault], files.lone_images, files.lone_masks),
        introduction=(f"{show_count(rows, 'image')} with masks of {len(values.counts)} classes.",),
        assumptions=(background,),
    )
    return draft_annotated(request, annotated)


def _choose_task(size: Sequence[int]) -> ChosenSettings:
    task: dict[str, Any] = {"kind": "segmentation", "flips": [1]}
    patch = [min(PATCH, length) for length in size]
    if patch != list(size):
        task["patch"] = patch
    if (depth := depth_for(min(patch))) < 4:
        task["depth"] = depth
    return ChosenSettings(task, "flips: where a mirrored image could be one too")


def depth_for(side: int) -> int:
    """How often a network halves parts whose shortest side this is: about four pixels are left, and the task's default is the most."""
    return max(1, min(4, int(log2(side)) - 2))


def _find_folders(contents: FolderContents) -> tuple[str, str] | None:
    """The folders of images and of masks: the only two, one called as masks are, with files of equal names."""
    folders = sorted({file.folder for file in contents.files})
    mask_folders = [folder for folder in folders if MASK_FOLDER.search(folder)]
    if contents.is_file or len(folders) != 2 or len(mask_folders) != 1 or any(file.ending not in IMAGES for file in contents.files):
        return None
    (mask,), (image,) = mask_folders, set(folders) - set(mask_folders)
    stems = [{file.stem for file in contents.files if file.folder == folder} for folder in (image, mask)]
    return (image, mask) if image and 2 * len(stems[0] & stems[1]) > min(map(len, stems)) else None
