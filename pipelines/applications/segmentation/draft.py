"""Drafts the config for volumes with labels, NIfTI files in two folders, on a grid of voxels that suits them. `mask_draft` does so for
images.
"""

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod
from pathlib import Path
from statistics import median_low
from typing import Any

import numpy as np

from pipelines.applications.segmentation.encoders import Mask, Volume
from pipelines.applications.segmentation.mask_draft import (
    MASK_FOLDER,
    FilePair,
    MaskPairs,
    count_values,
    depth_for,
    draft_masks,
    join_query,
    name_classes,
    pair_files,
)
from pipelines.applications.segmentation.nifti import Grid, extent, read_grid, read_nifti, shape_at_spacing
from pipelines.applications.segmentation.settings import MOST_CLASSES, MaskSettings, VolumeSettings
from pipelines.config.messages.words import name_list, show_count
from pipelines.data.features.media_files import UnreadableError
from pipelines.errors import ConfigError
from pipelines.init.draft import Draft, Request
from pipelines.init.media.class_folders import refuse_target
from pipelines.init.media.folder_contents import IMAGES, FolderContents, FoundFile, list_contents, refuse_equal_names, spread
from pipelines.init.media.images import MOST_UNREADABLE, AnnotatedImages, AnnotatedRows, ChosenSettings, draft_annotated, train_settings

LARGEST_VOXELS = 2**21
"""The most voxels of an encoded volume. With its mask one takes 6 MB, and a worker holds row groups of 64 rows, 400 MB."""
PATCH_VOXELS, WHOLE_VOXELS = 64**3, 2**20
"""The most voxels that are trained on at once, and predicted at once. Each takes 130 and 40 bytes for each of 16 channels, so these take
550 and 670 MB."""
_PATCH_SIDE = 64
_STEP = 1.05
"""By which voxels grow until a volume has few enough."""
_EQUAL = 0.01
"""Spacings that differ by less are the same."""


@dataclass(frozen=True)
class VolumeGrid:
    """How volumes are encoded."""

    shape: tuple[int, ...]
    """Voxels to the right, to the front and upwards: multiples of 2^depth."""
    largest: tuple[int, ...]
    """The most voxels of a volume along each axis, before padding."""
    spacing: tuple[float, ...] | None
    """Millimetres to which volumes are resampled; None if all have the same, and few enough voxels."""
    is_coarser: bool
    """Whether voxels are larger than those of the files, so that the volume fits memory."""
    depth: int
    patch: tuple[int, ...] | None
    """A part that is trained on; None for whole volumes."""

    @property
    def voxels(self) -> int:
        return prod(self.shape)

    @property
    def tile(self) -> tuple[int, ...] | None:
        """A part that is predicted. None for whole volumes, which takes less time, since parts overlap."""
        return self.patch if self.voxels > WHOLE_VOXELS else None


def choose_grid(grids: Sequence[Grid]) -> VolumeGrid:
    """The grid that holds the largest of the volumes."""
    usual = tuple(_round(median_low(values)) for values in zip(*(grid.spacing for grid in grids), strict=True))
    differs = any(abs(old / new - 1) > _EQUAL for grid in grids for old, new in zip(grid.spacing, usual, strict=True))
    spacing = usual if differs else None
    largest = _largest(grids, spacing)
    is_coarser, least = prod(largest) > LARGEST_VOXELS, min(usual)
    while prod(largest) > LARGEST_VOXELS:  # axes with short distances are resampled first
        spacing = tuple(max(distance, _round(least)) for distance in usual)
        largest = _largest(grids, spacing)
        least *= _STEP
    depth = depth_for(min(_PATCH_SIDE, *largest))
    shape = tuple(2**depth * ceil(side / 2**depth) for side in largest)
    sides = list(shape)
    while prod(sides) > PATCH_VOXELS:  # the longest side is cut
        sides[sides.index(max(sides))] -= 2**depth
    return VolumeGrid(shape, largest, spacing, is_coarser, depth, tuple(sides) if sides != list(shape) else None)


def _largest(grids: Sequence[Grid], spacing: Sequence[float] | None) -> tuple[int, ...]:
    shapes = [shape_at_spacing(grid.shape, grid.spacing, spacing) for grid in set(grids)]
    return tuple(max(sides) for sides in zip(*shapes, strict=True))


def _round(value: float) -> float:
    """Three digits, as a person would write it."""
    return float(f"{value:.3g}")


VOLUMES = (".nii", ".nii.gz")
CHANNELS = ("", "_0000")
"""What the names of images may have behind the names of their labels: nothing, or nnU-Net's number of the first channel."""
_DESCRIPTION = "dataset.json"
"""A file of the Medical Segmentation Decathlon and of nnU-Net beside the folders, which names the classes."""


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
        (image, label, channel, _pair(by_folder[image], by_folder[label], channel))
        for label in labels
        for image in sorted(by_folder.keys() - set(labels) - {""})
        for channel in CHANNELS
    ]
    image, label, channel, files = max(choices, key=lambda choice: len(choice[3].pairs), default=("", "", "", None))
    if files is None or not files.pairs:
        raise ConfigError(_missing_labels(contents, by_folder))
    image_pattern = _name_pattern(contents.path, by_folder[image], channel)
    return VolumeFolders(image, label, channel, files, image_pattern, _name_pattern(contents.path, by_folder[label], ""))


def volume_name(file: FoundFile, channel: str = "") -> str:
    """The name of a file without its ending and channel; empty if it is of another channel."""
    stem = file.name.rpartition("/")[2][: -len(file.ending)]
    return stem.removesuffix(channel) if stem.endswith(channel) else ""


def name_expression(channel: str) -> str:
    """SQL for that name, over `path`."""
    return f"regexp_extract(path, '([^/]+){channel}[.](?i:nii([.]gz)?)$', 1)"


def _name_pattern(path: str, files: Sequence[FoundFile], channel: str) -> str:
    named = [(name, file) for file in files if (name := volume_name(file, channel))]
    refuse_equal_names(path, named)
    endings = sorted({file.name[-len(file.ending) :] for _, file in named})
    return f"*{channel}{endings[0]}" if len(endings) == 1 else f"*{channel}{{{','.join(endings)}}}"


def _pair(images: Sequence[FoundFile], labels: Sequence[FoundFile], channel: str) -> MaskPairs:
    images_by_name = {name: file for file in images if (name := volume_name(file, channel))}
    return pair_files(images_by_name, {volume_name(file): file for file in labels})


def _missing_labels(contents: FolderContents, by_folder: dict[str, list[FoundFile]]) -> str:
    pictures = [file for file in contents.select_endings(IMAGES) if MASK_FOLDER.search(file.folder)]
    if pictures:
        return (
            f"{contents.path}: the labels in {pictures[0].folder} are {pictures[0].ending} files, and their images volumes; save each "
            "label as one NIfTI volume with the affine matrix of its image"
        )
    places = name_list([f"{len(files):,} such as {files[0].name}" for files in by_folder.values()][:3])
    return (
        f"{contents.path}: NIfTI volumes without labels ({places}); put volumes into a folder images and their labels into a folder "
        "labels, each label with the name of its image"
    )


def _class_names(contents: FolderContents, images: str) -> dict[int, str]:
    """The classes that the description beside the folders names, by value; empty if it has none that a config can take."""
    place = Path(contents.root, Path(images).parent, _DESCRIPTION)
    try:
        labels = json.loads(place.read_bytes())["labels"]
        # The Decathlon has names by values, and nnU-Net values by names.
        has_values_first = all(re.fullmatch("[0-9]+", key) for key in labels)
        names = {int(key if has_values_first else name): str(name if has_values_first else key).strip() for key, name in labels.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    are_distinct = len(set(names.values())) == len(names)
    return names if len(names) >= 2 and all(names.values()) and are_distinct else {}


def _folder_doubts(contents: FolderContents, chosen: VolumeFolders) -> list[str]:
    volumes = contents.select_endings(VOLUMES)
    outside = [file for file in volumes if file.folder not in (chosen.images, chosen.labels)]
    other_channels = [file for file in volumes if file.folder == chosen.images and not volume_name(file, chosen.channel)]
    strangers = [file for file in contents.files if file.ending not in VOLUMES and not file.name.endswith(_DESCRIPTION)]
    kinds = {
        f"files in other folders than {chosen.images} and {chosen.labels}": outside,
        f"files of other channels than {chosen.channel}": other_channels,
        "files that are no volumes": strangers,
    }
    return [f"{kind} are left out: {len(files):,}, such as {files[0].name}" for kind, files in kinds.items() if files]


MOST_HEADERS, MOST_LABELS, MOST_PAIRS = 1_000, 100, 100
"""The most headers, labels and pairs that are read."""
LABEL_VOXELS, PAIR_VOXELS = 2**28, 2**26
"""The most voxels of these labels and pairs, about: each takes some 20 s to read."""
LEAST_LABELS, LEAST_PAIRS = 10, 3
"""So many are read, however large they are."""
_HEADER_BYTES = 2**16


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
    values = count_values(
        request.data,
        ((label.name, _read(contents, label)) for _, label in labels),
        "label",
        _read_label,
        "save labels as NIfTI volumes with a whole number for each class",
        MOST_CLASSES,
    )
    grid = choose_grid(grids)
    size: dict[str, Any] = {"shape": list(grid.shape), **({"spacing": list(grid.spacing)} if grid.spacing else {})}
    image = {"encoder": "volume", **size}
    # Names count if they cover all values. The background is 0, if labels have it.
    names = _class_names(contents, folders.images)
    names = names if values.counts.keys() <= names.keys() else {}
    every = names or values.counts
    classes = name_classes(every, 0 if 0 in every else values.most_frequent, names)
    label = {"encoder": "mask", **size, **classes, "image": "image"}
    sample = spread(folders.files.pairs, _sample_size(voxels, PAIR_VOXELS, LEAST_PAIRS, MOST_PAIRS))
    faults = [fault for pair in sample if (fault := _fault(contents, pair, image, label))]
    files, rows = folders.files, len(folders.files.pairs)
    shares = values.shares(label["values"])
    label_reason = f"values of {len(labels)} labels: {shares} of the voxels; the first class is the background, and the padding"
    return draft_annotated(
        request,
        AnnotatedImages(
            noun="volumes",
            unit="label",
            source=_source(contents, folders),
            image=ChosenSettings(image, _grid_reason(grid, grids)),
            annotation=ChosenSettings(label, label_reason),
            task=_task(grid),
            train=train_settings(rows, images=3_000, most_epochs=100, batch=4 if rows < 1_000 else 8, rate=2e-3),
            rows=AnnotatedRows(rows, len(sample), faults, files.lone_images, files.lone_masks),
            introduction=(
                f"{show_count(rows, 'volume')} with labels of {len(label['classes'])} classes.",
                "Reading them needs nibabel: pip install 'lockstep-pipelines[medical]'",
            ),
            assumptions=(*_folder_doubts(contents, folders), *_doubts(label, grid, unread=rows - len(labels))),
        ),
    )


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


def _grid_reason(grid: VolumeGrid, grids: Sequence[Grid]) -> str:
    unit = 2**grid.depth
    reason = (
        f"voxels to the right, to the front and upwards: the largest of {len(grids):,} volumes has {extent(grid.largest)}, and {unit} "
        "divides the sides"
    )
    if not grid.spacing:
        return reason
    distances = [distance for grid in grids for distance in grid.spacing]
    least, largest = _round(min(distances)), _round(max(distances))
    why = "coarser, so that a row group fits memory" if grid.is_coarser else "their median"
    return f"{reason}\nspacing, in millimetres: that of the files is {least:g} to {largest:g}; this is {why}"


def _task(grid: VolumeGrid) -> ChosenSettings:
    task: dict[str, Any] = {"kind": "segmentation", "depth": grid.depth, "elastic": 2, "jitter": 0.3}
    reason = "no flips: left and right of a body are not the same"
    if grid.patch:
        task["patch"] = list(grid.patch)
        reason += f"\npatch: a voxel takes some 2 KB in training, so a whole volume {2e-6 * grid.voxels:.1f} GB"
    if grid.tile:
        task["tile"] = list(grid.tile)
        reason += f"\ntile: a voxel takes some 640 bytes in evaluation, so a whole volume {6.4e-7 * grid.voxels:.1f} GB"
    return ChosenSettings(task, reason)


def _doubts(label: dict[str, Any], grid: VolumeGrid, unread: int) -> list[str]:
    background, names = label["values"][0], label["classes"]
    doubts = [f"the value {background} of labels is taken for the background: classes begin with it"]
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


DRAFTERS = (draft_masks, draft_volumes)
UNREADABLE = dict.fromkeys((".dcm", ".mha", ".mhd", ".nrrd", ".mgz"), "the encoder volume reads NIfTI; convert the volumes to .nii.gz")
"""What to do with other volumes, by the endings of their files."""
