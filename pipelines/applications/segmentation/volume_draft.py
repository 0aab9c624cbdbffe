"""Drafts the config for a folder of volumes and one of their labels, as NIfTI files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.applications.segmentation.mask_encoder import Mask
from pipelines.applications.segmentation.mask_pairs import FilePair, join_query
from pipelines.applications.segmentation.mask_values import MaskFiles, MaskValues, count_values, name_classes
from pipelines.applications.segmentation.nifti import Grid, extent, read_grid, read_nifti
from pipelines.applications.segmentation.settings import MOST_CLASSES, MaskSettings, VolumeSettings
from pipelines.applications.segmentation.volume_encoder import Volume
from pipelines.applications.segmentation.volume_folders import VolumeFolders, find_volume_folders, name_expression
from pipelines.applications.segmentation.volume_grids import VolumeGrid, choose_grid, spacing_range
from pipelines.config.messages.counting import show_count
from pipelines.data.features.media.file_kinds import UnreadableError
from pipelines.errors import ConfigError
from pipelines.init.draft import Draft, Request
from pipelines.init.media.annotated import AnnotatedImages, AnnotatedRows, ChosenSettings, draft_annotated, train_settings
from pipelines.init.media.classes import refuse_target
from pipelines.init.media.contents import FolderContents, FoundFile, list_contents, spread
from pipelines.init.media.pictures import MOST_UNREADABLE

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
    grids = _read_grids(contents, folders.image_files)
    voxels = float(np.median([np.prod(grid.shape) for grid in grids]))
    labels = spread(folders.files.pairs, _sample_size(voxels, LABEL_VOXELS, LEAST_LABELS, MOST_LABELS))
    values = count_values(request.data, ((label.name, _read(contents, label)) for _, label in labels), _LABELS)
    grid = choose_grid(grids)
    image, label = _encoders(grid, _classes(values, folders.class_names))
    sample = spread(folders.files.pairs, _sample_size(voxels, PAIR_VOXELS, LEAST_PAIRS, MOST_PAIRS))
    faults = [fault for pair in sample if (fault := _fault(contents, pair, image, label))]
    files, rows = folders.files, len(folders.files.pairs)
    return draft_annotated(
        request,
        AnnotatedImages(
            noun="volumes",
            unit="label",
            source=_source(contents, folders),
            image=ChosenSettings(image, _grid_reason(grid, grids)),
            annotation=ChosenSettings(label, _label_reason(values, label["values"], len(labels))),
            task=_task(grid),
            train=train_settings(rows, images=3_000, most_epochs=100, batch=4 if rows < 1_000 else 8, rate=2e-3),
            rows=AnnotatedRows(rows, len(sample), faults, files.lone_images, files.lone_masks),
            introduction=(
                f"{show_count(rows, 'volume')} with labels of {len(label['classes'])} classes.",
                "Reading them needs nibabel: pip install 'lockstep-pipelines[medical]'",
            ),
            assumptions=(*folders.assumptions, *_doubts(label, grid, unread=rows - len(labels))),
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


def _classes(values: MaskValues, names: dict[int, str]) -> dict[str, Any]:
    """Settings of the classes, with the names if they cover all values. The background is 0, if labels have it."""
    full_names = names if values.counts.keys() <= names.keys() else {}
    every = full_names or values.counts
    return name_classes(every, 0 if 0 in every else values.most_frequent, full_names)


def _encoders(grid: VolumeGrid, classes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of the encoders of volumes and of labels."""
    size: dict[str, Any] = {"shape": list(grid.shape), **({"spacing": list(grid.spacing)} if grid.spacing else {})}
    return {"encoder": "volume", **size}, {"encoder": "mask", **size, **classes, "image": "image"}


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
    least, largest = spacing_range(grids)
    why = "coarser, so that a row group fits memory" if grid.is_coarser else "their median"
    return f"{reason}\nspacing, in millimetres: that of the files is {least:g} to {largest:g}; this is {why}"


def _label_reason(values: MaskValues, listed: Sequence[int], labels: int) -> str:
    return f"values of {labels} labels: {values.shares(listed)} of the voxels; the first class is the background, and the padding"


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


_LABELS = MaskFiles("label", _read_label, "save labels as NIfTI volumes with a whole number for each class", MOST_CLASSES)
