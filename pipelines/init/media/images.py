"""Drafts the config for a folder of images, and for the IDX files of MNIST and its kin."""

import io
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import PIL.Image

from pipelines.config.messages.words import name_list, show_count
from pipelines.data.features.media_files import orientation, shown_size
from pipelines.errors import ConfigError, SourceError
from pipelines.formats.idx.idx_format import Header, read_header, read_rows
from pipelines.init.draft import Draft, KeyPath, Request
from pipelines.init.media.class_folders import (
    SPLITS,
    Learning,
    batch_rows,
    check_class_counts,
    draft_files,
    epochs_for,
    find_classes,
    refuse_target,
    split_reason,
    split_setting,
    train_rows,
)
from pipelines.init.media.folder_contents import IMAGES, FolderContents, FoundFile, SampledFiles, find_file_table, list_contents

MOST_PIXELS = 60_000_000
"""The most pixels of the sample that are decoded; of further images, only the checksums are."""
LARGEST_SIDE = 64
"""For the network `small`, whose hidden layer has weights for each pixel."""
MOST_UNREADABLE = 0.2
_GREY = ("1", "L", "I", "I;16", "LA")
_NAME = re.compile(r"idx[0-9]|ubyte")
_ROWS_AT_A_TIME = 1_000_000
Pair = tuple[FoundFile, FoundFile]
"""A file of images, and that of their labels."""


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


def draft_idx(request: Request) -> Draft | None:
    """Draft the config for IDX files. None if no file has the name of one."""
    contents = list_contents(request.data)
    files = [file for file in contents.files if _NAME.search(file.name.lower())]
    if 2 * len(files) <= len(contents.files) or contents.is_file:
        return None
    refuse_target(request, "in the files of labels")
    headers = {file: read_header(contents.place(file)) for file in files}
    pairs = _pairs(contents, headers)
    counts = {split: _count_labels(contents.place(labels), headers[images]) for split, (images, labels) in pairs.items()}
    classes = sum(counts.values(), Counter[str]())
    check_class_counts(request.data, classes, "rows")
    shape = _shape(contents.path, pairs["train"][0].name, [headers[images] for images, _ in pairs.values()])
    splits = tuple(pairs) if len(pairs) > 1 else ()
    rows = train_rows(counts["train"].total(), splits)
    paths = {split: [contents.place(file) for file in pair] for split, pair in pairs.items()}
    source: dict[str, Any] = {
        "tables": {split: {"format": "idx", "path": both, "schema": "image binary, label int"} for split, both in paths.items()}
    }
    if splits:
        source["query"] = "\nUNION ALL\n".join(f"SELECT image, label, '{split}' AS split FROM {split}" for split in pairs)
    source["expect"] = {"a known class": f"label BETWEEN {min(map(int, classes))} AND {max(map(int, classes))}"}
    comments: dict[KeyPath, str] = {
        ("dataset", "split"): split_reason(splits, classes),
        ("dataset", "features", "image"): "channels, height, width of the files",
        ("dataset", "target"): f"{len(classes)} classes",
        ("train",): f"about {show_count(rows, 'image')} for training",
    }
    dataset = {
        "path": f"data/{request.name}",
        "split": split_setting(splits, counts["train"].total(), "label", classes),
        "features": {"image": {"encoder": "image", "shape": list(shape)}},
        "target": {"label": "label"},
    }
    task = {"kind": "vision", "network": "small", "dropout": 0.4}
    totals = name_list([f"{counts[split].total():,} {split}" for split in pairs]) if splits else f"{classes.total():,}"
    return Draft(
        {"name": request.name, "source": source, "dataset": dataset, "task": task, "train": image_training(rows)},
        (f"Images of {len(classes)} classes in IDX files: {totals}.",),
        comments,
    )


def _pairs(contents: FolderContents, headers: Mapping[FoundFile, Header]) -> dict[str, Pair]:
    """The files by split, `train` first. Raises ConfigError if images have no labels, or two sets of them are of one split."""
    pairs: dict[str, Pair] = {}
    stems = {file: re.split("images?|labels?", file.name.lower())[0] for file in headers}
    for images, header in headers.items():
        if len(header.shape) < 3:
            continue
        stem = stems[images]
        labels = next((file for file, other in headers.items() if len(other.shape) == 1 and stems[file] == stem), None)
        if labels is None:
            raise ConfigError(f"{contents.path}: {images.name} has no file of labels; add one whose name has labels in place of images")
        words = re.split("[^a-z0-9]+", stem)
        split = next((SPLITS[word] for word in words if word in SPLITS), "train")
        if split in pairs:
            raise ConfigError(
                f"{contents.path}: {pairs[split][0].name} and {images.name} are two sets of images for {split}; "
                "move each set to a folder of its own"
            )
        pairs[split] = images, labels
    if "train" not in pairs:
        raise ConfigError(f"{contents.path}: no IDX file of images for training; add one with train in its name")
    return {split: pairs[split] for split in ("train", "validation", "test") if split in pairs}


def _shape(path: str, name: str, headers: Sequence[Header]) -> tuple[int, int, int]:
    """Channels, height and width. Raises ConfigError if files differ, or have other values than bytes."""
    (shape, *differing) = {header.shape[1:] for header in headers}
    if differing or len(shape) > 3 or any(header.dtype != np.dtype("u1") for header in headers):
        raise ConfigError(f"{path}: {name} and the others have no bytes of one shape; make files of images of equal size")
    channels, height, width = (1, *shape)[-3:]
    return channels, height, width


def _count_labels(path: str, images: Header) -> Counter[str]:
    """Rows of each class. Raises SourceError if there are fewer labels than images, or more."""
    counts: Counter[str] = Counter()
    for labels in read_rows(path, _ROWS_AT_A_TIME):
        values, numbers = np.unique(labels.to_numpy(), return_counts=True)
        counts.update(dict(zip(map(str, values.tolist()), numbers.tolist(), strict=True)))
    if counts.total() != images.shape[0]:
        raise SourceError(f"{path} has {counts.total():,} labels, for {images.shape[0]:,} images; get both files again")
    return counts
