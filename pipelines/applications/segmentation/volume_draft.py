"""Drafts the config for volumes with labels, NIfTI files in two folders, on a `volume_grid` that suits them."""

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.applications.segmentation.encoders import Mask, Volume
from pipelines.applications.segmentation.mask_draft import (
    MASK_FOLDER,
    FilePair,
    MaskPairs,
    MaskValues,
    count_values,
    join_query,
    name_classes,
    pair_files,
)
from pipelines.applications.segmentation.nifti import Grid, read_grid, read_nifti
from pipelines.applications.segmentation.settings import MOST_CLASSES, MaskSettings, VolumeSettings
from pipelines.applications.segmentation.volume_grid import VolumeGrid, choose_grid, grid_reason, grid_task
from pipelines.config.messages.words import name_list, show_count
from pipelines.data.features.media_files import UnreadableError
from pipelines.errors import ConfigError
from pipelines.init.draft import Draft, Request
from pipelines.init.media.class_folders import refuse_target
from pipelines.init.media.folder_contents import IMAGES, FolderContents, FoundFile, list_contents, refuse_equal_names, spread
from pipelines.init.media.images import MOST_UNREADABLE, AnnotatedImages, AnnotatedRows, ChosenSettings, draft_annotated, train_settings

VOLUMES = (".nii", ".nii.gz")
CHANNELS = ("", "_0000")
"""What the names of images may have behind the names of their labels: nothing, or nnU-Net's number of the first channel."""
_DESCRIPTION = "dataset.json"
"""A file of the Medical Segmentation Decathlon and of nnU-Net beside the folders, which names the classes."""
MOST_HEADERS, MOST_LABELS, MOST_PAIRS = 1_000, 100, 100
"""The most headers, labels and pairs that are read."""
LABEL_VOXELS, PAIR_VOXELS = 2**28, 2**26
"""The most voxels of these labels and pairs, about: each takes some 20 s to read."""
LEAST_LABELS, LEAST_PAIRS = 10, 3
"""So many are read, however large they are."""
_HEADER_BYTES = 2**16


@dataclass(frozen=True)
class VolumeFolders:
    """A folder of images, and one of labels."""

    images: str
    labels: str
    channel: str
    """One of CHANNELS."""
    files: MaskPairs
    image_pattern: str
    label_pattern: str
    """Patterns of the names of files, with the endings as they are written."""


def find_volume_folders(contents: FolderContents) -> VolumeFolders | None:
    """The folders with most volumes that have labels. None if few of the files are volumes. Raises ConfigError if none have labels, or if
    two files of a folder have equal names but for their endings."""
    volumes = contents.select_endings(VOLUMES)
    if not volumes or 4 * len(volumes) < len(contents.files):
        return None
    by_folder = defaultdict[str, list[FoundFile]](list)
    for file in volumes:
        by_folder[file.folder].append(file)
    labels = [folder for folder in sorted(by_folder) if MASK_FOLDER.search(folder.rpartition("/")[2])]
    choices = [
        (image, label, channel, pair_files(_files_by_name(by_folder[image], channel), _files_by_name(by_folder[label])))
        for label in labels
        for image in sorted(by_folder.keys() - set(labels) - {""})
        for channel in CHANNELS
    ]
    image, label, channel, files = max(choices, key=lambda choice: len(choice[3].pairs), default=("", "", "", None))
    if files is None or not files.pairs:
        pictures = [file for file in contents.select_endings(IMAGES) if MASK_FOLDER.search(file.folder)]
        if pictures:
            raise ConfigError(
                f"{contents.path}: the labels in {pictures[0].folder} are {pictures[0].ending} files, and their images volumes; save each "
                "label as one NIfTI volume with the affine matrix of its image"
            )
        places = name_list([f"{len(files):,} such as {files[0].name}" for files in by_folder.values()][:3])
        raise ConfigError(
            f"{contents.path}: NIfTI volumes without labels ({places}); put volumes into a folder images and their labels into a folder "
            "labels, each label with the name of its image"
        )
    image_pattern = _name_pattern(contents.path, by_folder[image], channel)
    return VolumeFolders(image, label, channel, files, image_pattern, _name_pattern(contents.path, by_folder[label], ""))


def volume_name(file: FoundFile, channel: str = "") -> str:
    """The name of a file without its ending and channel; empty if it is of another channel."""
    stem = file.name.rpartition("/")[2][: -len(file.ending)]
    return stem.removesuffix(channel) if stem.endswith(channel) else ""


def name_expression(channel: str) -> str:
    """SQL for that name, over `path`."""
    return f"regexp_extract(path, '([^/]+){channel}[.](?i:nii([.]gz)?)$', 1)"


def _files_by_name(files: Sequence[FoundFile], channel: str = "") -> dict[str, FoundFile]:
    return {name: file for file in files if (name := volume_name(file, channel))}


def _name_pattern(path: str, files: Sequence[FoundFile], channel: str) -> str:
    named_files = [(name, file) for file in files if (name := volume_name(file, channel))]
    refuse_equal_names(path, named_files)
    endings = sorted({file.name[-len(file.ending) :] for _, file in named_files})
    return f"*{channel}{endings[0]}" if len(endings) == 1 else f"*{channel}{{{','.join(endings)}}}"


def _choose_classes(contents: FolderContents, images: str, values: MaskValues) -> dict[str, Any]:
    """The settings `classes` and `values`, by the description beside the folders if it names all values in a way that a config can take.
    The background is 0, if labels have it."""
    place = Path(contents.root, Path(images).parent, _DESCRIPTION)
    try:
        labels = json.loads(place.read_bytes())["labels"]
        # The Decathlon has names by values, and nnU-Net values by names.
        has_values_first = all(re.fullmatch("[0-9]+", key) for key in labels)
        names = {int(key if has_values_first else name): str(name if has_values_first else key).strip() for key, name in labels.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        names = {}
    are_distinct = len(set(names.values())) == len(names)
    if len(names) < 2 or not all(names.values()) or not are_distinct or not values.counts.keys() <= names.keys():
        names = {}
    every_value = names or values.counts
    return name_classes(every_value, 0 if 0 in every_value else values.most_frequent, names)


def draft_volumes(request: Request) -> Draft | None:
    """Draft the config for folders of volumes and of labels. None for other data. Raises ConfigError if volumes have no labels, if most
    cannot be read, or if nibabel is not installed."""
    contents = list_contents(request.data)
    folders = find_volume_folders(contents)
    if folders is None:
        return None
    refuse_target(request, "in the labels")
    grids = _read_grids(contents, [image for image, _ in folders.files.pairs])
    voxels = float(np.median([np.prod(grid.shape) for grid in grids]))
    labels = spread(folders.files.pairs, _sample_size(voxels, LABEL_VOXELS, LEAST_LABELS, MOST_LABELS))
    values = _count_label_values(contents, [label for _, label in labels])
    grid = choose_grid(grids)
    size: dict[str, Any] = {"shape": list(grid.shape), **({"spacing": list(grid.spacing)} if grid.spacing else {})}
    image = {"encoder": "volume", **size}
    label = {"encoder": "mask", **size, **_choose_classes(contents, folders.images, values), "image": "image"}
    sample = spread(folders.files.pairs, _sample_size(voxels, PAIR_VOXELS, LEAST_PAIRS, MOST_PAIRS))
    faults = [fault for pair in sample if (fault := _fault(contents, pair, image, label))]
    files, rows = folders.files, len(folders.files.pairs)
    shares = values.shares(label["values"])
    label_reason = f"values of {len(labels)} labels: {shares} of the voxels; the first class is the background, and the padding"
    annotated = AnnotatedImages(
        noun="volumes",
        unit="label",
        source=_source(contents, folders),
        image=ChosenSettings(image, grid_reason(grid, grids)),
        annotation=ChosenSettings(label, label_reason),
        task=grid_task(grid),
        train=train_settings(rows, images=3_000, most_epochs=100, batch=4 if rows < 1_000 else 8, rate=2e-3),
        rows=AnnotatedRows(rows, len(sample), faults, files.lone_images, files.lone_masks),
        introduction=(
            f"{show_count(rows, 'volume')} with labels of {len(label['classes'])} classes.",
            "Reading them needs nibabel: pip install 'lockstep-pipelines[medical]'",
        ),
        assumptions=tuple(_doubts(contents, folders, label, grid, unread=rows - len(labels))),
    )
    return draft_annotated(request, annotated)


def _source(contents: FolderContents, folders: VolumeFolders) -> dict[str, Any]:
    places = {"images": (folders.images, folders.image_pattern), "labels": (folders.labels, folders.label_pattern)}
    tables = {
        name: {"format": "binaryFile", "path": f"{contents.path}/{folder}", "options": {"pathGlobFilter": pattern}}
        for name, (folder, pattern) in places.items()
    }
    return {"tables": tables, "query": join_query(name_expression(folders.channel), name_expression(""), "labels", "label")}


def _read(contents: FolderContents, file: FoundFile) -> bytes:
    return Path(contents.place(file)).read_bytes()


def _read_grids(contents: FolderContents, files: Sequence[FoundFile]) -> list[Grid]:
    """Sizes and spacings of a sample. Raises ConfigError if too many of it cannot be read."""
    grids, faults = list[Grid](), list[str]()
    for file in (sample := spread(files, MOST_HEADERS)):
        with Path(contents.place(file)).open("rb") as stream:
            try:
                grids.append(read_grid(stream.read(_HEADER_BYTES)))
            except UnreadableError as error:
                faults.append(f"{file.name}: {error}")
    if len(faults) > MOST_UNREADABLE * len(sample):
        raise ConfigError(
            f"{contents.path}: {len(faults)} of {len(sample)} volumes cannot be read, such as {faults[0]}; save each as one NIfTI file of "
            "three axes with an orientation, or remove them"
        )
    return grids


def _count_label_values(contents: FolderContents, labels: Sequence[FoundFile]) -> MaskValues:
    return count_values(
        contents.path,
        ((label.name, _read(contents, label)) for label in labels),
        "label",
        _read_label,
        "save labels as NIfTI volumes with a whole number for each class",
        MOST_CLASSES,
    )


def _read_label(content: bytes) -> np.ndarray:
    """The values of a label as whole numbers. Raises UnreadableError if it has others."""
    values = read_nifti(content).values
    with np.errstate(invalid="ignore"):
        numbers = values.astype(np.int32)
    if (is_broken := numbers != values).any():
        raise UnreadableError(f"it has the value {values[is_broken][0]:g}, which is no whole number")
    return numbers


def _sample_size(voxels: float, most_voxels: int, least: int, most: int) -> int:
    """How many volumes of so many `voxels` have `most_voxels` together, from `least` to `most`."""
    return int(np.clip(most_voxels // voxels, least, most))


def _fault(contents: FolderContents, pair: FilePair, image: dict[str, Any], label: dict[str, Any]) -> str:
    """Why ETL would refuse an image or its label; empty if it would not."""
    image_content, label_content = (_read(contents, file) for file in pair)
    if fault := Volume(VolumeSettings(**image), {}).fault(image_content):
        return f"image: {fault}"
    fault = Mask(MaskSettings(**label), {}).fault(label_content, image_content)
    return f"label: {fault}" if fault else ""


def _doubts(contents: FolderContents, folders: VolumeFolders, label: dict[str, Any], grid: VolumeGrid, unread: int) -> list[str]:
    volumes = contents.select_endings(VOLUMES)
    outside = [file for file in volumes if file.folder not in (folders.images, folders.labels)]
    other_channels = [file for file in volumes if file.folder == folders.images and not volume_name(file, folders.channel)]
    strangers = [file for file in contents.files if file.ending not in VOLUMES and not file.name.endswith(_DESCRIPTION)]
    kinds = {
        f"files in other folders than {folders.images} and {folders.labels}": outside,
        f"files of other channels than {folders.channel}": other_channels,
        "files that are no volumes": strangers,
    }
    doubts = [f"{kind} are left out: {len(files):,}, such as {files[0].name}" for kind, files in kinds.items() if files]
    background, names = label["values"][0], label["classes"]
    doubts.append(f"the value {background} of labels is taken for the background: classes begin with it")
    if any(name == f"value_{value}" or name == "foreground" for name, value in zip(names, label["values"], strict=True)):
        doubts.append("no dataset.json names all values of labels: give the classes their names in dataset.target.label.classes")
        if unread:
            doubts.append(
                f"values of {unread:,} labels were not read: with one that is not among dataset.target.label.values, a label is quarantined"
            )
    if grid.is_coarser:
        spacing = " x ".join(f"{distance:g}" for distance in grid.spacing or ())
        doubts.append(
            f"volumes are resampled to {spacing} mm, which loses detail: for more, lower spacing and raise shape in both encoders"
        )
    return doubts
