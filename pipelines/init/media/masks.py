"""Drafts the config for a folder of images and one of masks, whose files have equal names."""

import re
from collections import Counter
from collections.abc import Sequence
from math import log2
from typing import Any

import numpy as np

from pipelines.config.features import MaskSettings
from pipelines.data.features.media.masks import Mask, read_values
from pipelines.data.features.media.nifti import UnreadableError
from pipelines.errors import ConfigError
from pipelines.init.draft import Draft, Request
from pipelines.init.media.annotated import STEM, AnnotatedImages, draft_annotated, epochs_for_images, files_in, scale_size
from pipelines.init.media.classes import refuse_target
from pipelines.init.media.contents import IMAGES, FolderContents, FoundFile, list_contents
from pipelines.init.media.file_table import SampledFiles, folder_table
from pipelines.init.media.pictures import Look, look_at_images

MASK_FOLDER = re.compile("mask|label|annotation|segment", re.IGNORECASE)
MOST_VALUES = 30
"""The most values of masks that are taken for classes; edges that were smoothed have more."""
MOST_MASKS = 100
"""The most masks that are read."""
LARGEST_SIDE, PATCH = 512, 256
_EXAMPLES = 5


def draft_masks(request: Request) -> Draft | None:
    """Draft the config for two folders of pictures, one with masks. None for other data. Raises ConfigError if masks have no classes."""
    contents = list_contents(request.data)
    folders = _find_folders(contents)
    if folders is None:
        return None
    refuse_target(request, "in the masks")
    images, masks = (folder_table(contents, folder, files_in(contents, folder, IMAGES), MOST_MASKS) for folder in folders)
    pairs = _pairs(images, masks)
    counts, sizes = _count_values(request.data, masks, [mask for _, mask in pairs])
    look = look_at_images(request.data, images)
    size = scale_size(look.height, look.width, LARGEST_SIDE)
    encoder = _encoder(counts, size, resize=set(sizes) != {size})
    faults = [fault for image, mask in pairs if (fault := _fault(encoder, masks.read(mask), images.read(image)))]
    return draft_annotated(request, _annotation(images, masks, look, encoder, counts, (len(pairs), faults)))


def _annotation(
    images: SampledFiles, masks: SampledFiles, look: Look, encoder: dict[str, Any], counts: Counter[int], tried: tuple[int, list[str]]
) -> AnnotatedImages:
    rows, size, total = len(_stems(images.files) & _stems(masks.files)), encoder["shape"], counts.total()
    shares = ", ".join(f"{value} in {counts[value] / total:.1%}" for value in encoder["values"])
    task: dict[str, Any] = {"kind": "segmentation", "flips": [1]}
    patch = [min(PATCH, length) for length in size]
    if patch != size:
        task["patch"] = patch
    if (depth := max(1, min(4, int(log2(min(patch))) - 2))) < 4:
        task["depth"] = depth
    batch = 4 if rows < 1_000 else 8
    training = {"workers": 2, "shards": 4, "epochs": epochs_for_images(rows, 3_000, 100), "global_batch": batch}
    scaled = f", scaled to {LARGEST_SIDE}" if max(look.height, look.width) > LARGEST_SIDE else ""
    return AnnotatedImages(
        unit="mask",
        tables={"images": images.settings, "masks": masks.settings},
        query=(
            f"SELECT name, images.content AS image, masks.content AS mask\nFROM (SELECT {STEM} AS name, content FROM images) AS images\n"
            f"FULL OUTER JOIN (SELECT {STEM} AS name, content FROM masks) AS masks USING (name)"
        ),
        shape=(look.shape[0], *size),
        shape_reason=f"channels, height, width: the median of {look.opened} images is {look.height} x {look.width}{scaled}",
        encoder=encoder,
        encoder_reason=f"values of {tried[0]} masks: {shares} of the pixels; the first class is the background",
        task=task,
        task_reason="flips: where a mirrored image could be one too",
        train={**training, "lr": 3e-3, "schedule": "one_cycle"},
        rows=rows,
        tried=tried[0],
        faults=tried[1],
        introduction=(f"{rows:,} images with masks of {len(counts)} classes.",),
        assumptions=(
            f"the value {encoder['values'][0]} of masks is taken for the background, as the most frequent: classes begin with it",
        ),
    )


def _find_folders(contents: FolderContents) -> tuple[str, str] | None:
    """The folders of images and of masks: the only two, one called as masks are, with files of equal names."""
    folders = sorted({file.folder for file in contents.files})
    named = [folder for folder in folders if MASK_FOLDER.search(folder)]
    if contents.is_file or len(folders) != 2 or len(named) != 1 or any(file.ending not in IMAGES for file in contents.files):
        return None
    (mask,), (image,) = named, set(folders) - set(named)
    stems = [_stems([file for file in contents.files if file.folder == folder]) for folder in (image, mask)]
    return (image, mask) if image and 2 * len(stems[0] & stems[1]) > min(map(len, stems)) else None


def _pairs(images: SampledFiles, masks: SampledFiles) -> list[tuple[FoundFile, FoundFile]]:
    by_stem = {file.stem: file for file in images.files}
    return [(by_stem[mask.stem], mask) for mask in masks.sample if mask.stem in by_stem]


def _stems(files: Sequence[FoundFile]) -> set[str]:
    return {file.stem for file in files}


def _count_values(path: str, masks: SampledFiles, sample: Sequence[FoundFile]) -> tuple[Counter[int], list[tuple[int, int]]]:
    """Pixels by value, and the height and width of each mask. Raises ConfigError if values cannot stand for classes."""
    counts, sizes, fault = Counter[int](), [], ""
    for file in sample:
        try:
            values, _ = read_values(masks.read(file))
        except UnreadableError as error:
            fault = fault or f"{file.name}: {error}"
            continue
        counts.update(dict(zip(*(numbers.tolist() for numbers in np.unique(values, return_counts=True)), strict=True)))
        sizes.append((values.shape[0], values.shape[1]))
    if not sizes:
        raise ConfigError(f"{path}: no mask can be read, such as {fault}; save masks as PNG files with a grey value for each class")
    if not 2 <= len(counts) <= MOST_VALUES:
        examples = ", ".join(map(str, sorted(counts)[:_EXAMPLES]))
        raise ConfigError(
            f"{path}: {len(sizes)} masks have {len(counts)} values, such as {examples}, and 2 to {MOST_VALUES} can stand for classes; "
            "save masks with a value for each class, without smoothed edges; if they are no masks, rename their folder"
        )
    return counts, sizes


def _encoder(counts: Counter[int], size: tuple[int, int], resize: bool) -> dict[str, Any]:
    """Settings of the encoder. The most frequent value is the background."""
    background = min(counts, key=lambda value: (-counts[value], value))
    foreground_values = sorted(set(counts) - {background})
    names = ["foreground"] if len(foreground_values) == 1 else [f"value_{value}" for value in foreground_values]
    encoder = {"encoder": "mask", "shape": list(size), "classes": ["background", *names], "values": [background, *foreground_values]}
    return {**encoder, "image": "image", **({"resize": True} if resize else {})}


def _fault(encoder: dict[str, Any], mask: bytes, image: bytes) -> str:
    return Mask(MaskSettings(**encoder), {}).fault(mask, image)
