"""Drafts the config for the IDX files of MNIST and its kin: images and labels, by splits."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.config.messages.words import name_list, show_count
from pipelines.errors import ConfigError, SourceError
from pipelines.formats.idx.idx_format import Header, read_header, read_rows
from pipelines.init.draft import Draft, KeyPath, Request
from pipelines.init.media.class_folders import (
    SPLITS,
    check_class_counts,
    refuse_target,
    split_reason,
    split_setting,
    train_rows,
)
from pipelines.init.media.folder_contents import FolderContents, FoundFile, list_contents
from pipelines.init.media.images import image_training

_NAME = re.compile(r"idx[0-9]|ubyte")
_ROWS_AT_A_TIME = 1_000_000
Pair = tuple[FoundFile, FoundFile]
"""A file of images, and that of their labels."""


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


DRAFTERS = (draft_idx,)
