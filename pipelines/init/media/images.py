"""Drafts the config for a folder of images; and the parts of a config that images with masks and images with boxes have in common."""

import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import PIL.Image

from pipelines.config.messages.words import name_list, show_count
from pipelines.data.features.media_files import orientation, shown_size
from pipelines.errors import ConfigError
from pipelines.init.draft import Draft, KeyPath, Request
from pipelines.init.media.class_folders import (
    LEAST_ROWS,
    Learning,
    batch_rows,
    draft_files,
    epochs_for,
    find_classes,
    train_rows,
)
from pipelines.init.media.folder_contents import IMAGES, FolderContents, FoundFile, SampledFiles, find_file_table, list_contents

MOST_PIXELS = 60_000_000
"""The most pixels of the sample that are decoded; of further images, only the checksums are."""
LARGEST_SIDE = 64
"""For the network `small`, whose hidden layer has weights for each pixel."""
MOST_UNREADABLE = 0.2
_GREY = ("1", "L", "I", "I;16", "LA")
FEW_IMAGES = 100
"""Below which a tenth of the images could leave a split without any."""
STEM = "regexp_extract(path, '([^/]+)[.][^./]*$', 1)"
"""SQL for the name of a file without folders and ending."""


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
    scaled = f", scaled to {LARGEST_SIDE} for the small network" if max(look.height, look.width) > LARGEST_SIDE else ""
    median_size = f"the median of {show_count(look.opened, 'image')} is {look.height} x {look.width}"
    failures = f"{len(look.unreadable)} of {look.opened} images cannot be decoded"
    learning = Learning(
        noun="image",
        feature="image",
        encoder={"encoder": "image", "shape": list(look.shape)},
        encoder_reason=f"channels, height, width: {median_size}{scaled}",
        task={"kind": "vision", "network": "small", "dropout": 0.4},
        train=image_training(rows),
        unreadable_share=len(look.unreadable) / look.opened,
        assumptions=tuple(f"{failures}, such as {name}: quarantined" for name in look.unreadable[:1]),
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


@dataclass(frozen=True)
class ChosenSettings:
    """Settings, and the reason for them."""

    settings: Mapping[str, Any]
    reason: str = ""


@dataclass(frozen=True)
class AnnotatedRows:
    """The rows of the query, and what ETL would do with a sample of them."""

    complete: int
    """Images that have an annotation."""
    tried: int
    faults: Sequence[str]
    """Why ETL would refuse some of the sample, each with the column."""
    lone_images: Sequence[str] = ()
    lone_annotations: Sequence[str] = ()
    """Names of images without an annotation, and of annotations without an image."""

    @property
    def refused_share(self) -> float:
        """The share of rows that would be quarantined."""
        lone = len(self.lone_images) + len(self.lone_annotations)
        return (len(self.faults) / self.tried * self.complete + lone) / (self.complete + lone)


@dataclass(frozen=True)
class AnnotatedImages:
    """The annotations of images, and a training on them."""

    noun: str
    """The images in the plural: images or volumes."""
    unit: str
    """The annotation of an image and its column: mask, label or boxes."""
    source: Mapping[str, Any]
    """`tables`, and a `query` with the columns `name`, `image`, one called as the unit, and `split` if there are splits."""
    image: ChosenSettings
    annotation: ChosenSettings
    """Their encoders."""
    task: ChosenSettings
    train: Mapping[str, Any]
    rows: AnnotatedRows
    splits: Sequence[str] = ()
    introduction: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()

    @property
    def article_and_unit(self) -> str:
        return self.unit if self.unit.endswith("s") else f"a {self.unit}"


def draft_annotated(request: Request, annotated: AnnotatedImages) -> Draft:
    """The draft for images that are annotated. Raises ConfigError if they are too few, or too many of the sample would be refused."""
    _check_rows(request.data, annotated)
    rows, unit, splits = annotated.rows, annotated.unit, annotated.splits
    split: dict[str, Any]
    if splits:
        split = {"by": "split"} if "validation" in splits else {"by": "split", "validation": 0.1}
    elif rows.complete < FEW_IMAGES:
        split = {"train": 0.6, "validation": 0.2, "test": 0.2}
    else:
        split = {"train": 0.8, "validation": 0.1, "test": 0.1}
    conditions = {"has an image": "image IS NOT NULL", f"has {annotated.article_and_unit}": f"{unit} IS NOT NULL"}
    source: dict[str, Any] = {**annotated.source, "expect": conditions}
    comments: dict[KeyPath, str] = {
        ("dataset", "features", "image"): annotated.image.reason,
        ("dataset", "target", unit): annotated.annotation.reason,
        ("dataset", "split"): f"as the data have it: {name_list(list(splits))}" if splits else "by a hash of the name",
        ("task",): annotated.task.reason,
        ("train",): f"{rows.complete:,} {annotated.noun} in all",
    }
    if rows.refused_share > 0.01:
        source["max_quarantined"] = round(min(2 * rows.refused_share, (1 + rows.refused_share) / 2), 2)
        comments["source", "max_quarantined"] = f"{rows.refused_share:.0%} of the {annotated.noun} would be refused"
    dataset = {
        "path": f"data/{request.name}",
        "key": "name",
        "split": split,
        "features": {"image": annotated.image.settings},
        "target": {unit: annotated.annotation.settings},
    }
    sections = {"name": request.name, "source": source, "dataset": dataset, "task": annotated.task.settings, "train": annotated.train}
    return Draft(sections, annotated.introduction, comments, (*annotated.assumptions, *_doubts(annotated)))


def _check_rows(path: str, annotated: AnnotatedImages) -> None:
    rows, named = annotated.rows, f"{annotated.noun} with {annotated.article_and_unit}"
    if rows.complete < LEAST_ROWS:
        raise ConfigError(f"{path}: {rows.complete} {named} do not fill three splits; add some, until there are {LEAST_ROWS}")
    if len(rows.faults) > MOST_UNREADABLE * rows.tried:
        ((reason, _),) = Counter(rows.faults).most_common(1)
        refused = f"{len(rows.faults)} of {rows.tried} {named} would be refused, most because of {reason}"
        raise ConfigError(f"{path}: {refused}; correct those files, or remove them")


def _doubts(annotated: AnnotatedImages) -> list[str]:
    """Says what would be quarantined, and how much of it."""
    rows, doubts = annotated.rows, list[str]()
    if rows.faults:
        ((reason, count),) = Counter(rows.faults).most_common(1)
        refused = f"{len(rows.faults)} of {rows.tried} {annotated.noun} that were tried are quarantined"
        doubts.append(f"{refused}, {count} of them because of {reason}")
    lone = {
        f"{annotated.noun} without {annotated.article_and_unit}": rows.lone_images,
        f"{annotated.unit}s without an image": rows.lone_annotations,
    }
    doubts += [f"{kind} are quarantined: {len(names):,}, such as {names[0]}" for kind, names in lone.items() if names]
    return doubts


def image_choice(look: Look, shape: tuple[int, int, int], largest: int) -> ChosenSettings:
    """The encoder of images, which brings all to one shape."""
    scaled = f", scaled to {largest}" if max(look.height, look.width) > largest else ""
    reason = f"channels, height, width: the median of {show_count(look.opened, 'image')} is {look.height} x {look.width}{scaled}"
    return ChosenSettings({"encoder": "image", "shape": list(shape)}, reason)


def scale_size(height: int, width: int, largest: int) -> tuple[int, int]:
    """Height and width with at most `largest` pixels on a side, and 16 or more on each."""
    scale = min(1.0, largest / max(height, width))
    return max(16, round(height * scale)), max(16, round(width * scale))


def train_settings(rows: int, images: int, most_epochs: int, batch: int, rate: float) -> dict[str, Any]:
    """The section `train` for so many rows: from 10 to `most_epochs` epochs, so that about so many `images` are seen."""
    epochs = max(10, min(most_epochs, images // rows))
    return {"workers": 2, "shards": 4, "epochs": epochs, "global_batch": batch, "lr": rate, "schedule": "one_cycle"}


def choose_folder(files: Sequence[FoundFile], stems: set[str]) -> str | None:
    """The folder that has most files of these stems; None if no folder has half of them."""
    counts = Counter(file.folder for file in files if file.stem in stems)
    folder, count = min(counts.items(), key=lambda item: (-item[1], item[0]), default=("", 0))
    return folder if 2 * count > len(stems) else None


def files_in(contents: FolderContents, folder: str, endings: Sequence[str]) -> tuple[FoundFile, ...]:
    return tuple(file for file in contents.select_endings(endings) if file.folder == folder)
