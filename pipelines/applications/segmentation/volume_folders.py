"""The folders of volumes and of their labels, as people lay them out."""

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipelines.applications.segmentation.mask_draft import MASK_FOLDER
from pipelines.applications.segmentation.mask_pairs import MaskPairs, pair_files
from pipelines.config.messages.counting import name_list
from pipelines.errors import ConfigError
from pipelines.init.media.contents import IMAGES, FolderContents, FoundFile, refuse_equal_names

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
    class_names: dict[int, str] = field(default_factory=dict)
    """By the value of labels; empty if no file says them."""
    assumptions: tuple[str, ...] = ()
    image_pattern: str = ""
    label_pattern: str = ""
    """Patterns of the names of files, with the endings as they are written."""

    @property
    def image_files(self) -> tuple[FoundFile, ...]:
        return tuple(image for image, _ in self.files.pairs)


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
        VolumeFolders(image, label, channel, _pair(by_folder[image], by_folder[label], channel))
        for label in labels
        for image in sorted(by_folder.keys() - set(labels) - {""})
        for channel in CHANNELS
    ]
    chosen = max(choices, key=lambda choice: len(choice.files.pairs), default=None)
    if chosen is None or not chosen.files.pairs:
        raise ConfigError(_missing_labels(contents, by_folder))
    return replace(
        chosen,
        class_names=_class_names(contents, chosen.images),
        assumptions=tuple(_doubts(contents, volumes, chosen)),
        image_pattern=_name_pattern(contents.path, by_folder[chosen.images], chosen.channel),
        label_pattern=_name_pattern(contents.path, by_folder[chosen.labels], ""),
    )


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


def _doubts(contents: FolderContents, volumes: Sequence[FoundFile], chosen: VolumeFolders) -> list[str]:
    outside = [file for file in volumes if file.folder not in (chosen.images, chosen.labels)]
    other_channels = [file for file in volumes if file.folder == chosen.images and not volume_name(file, chosen.channel)]
    strangers = [file for file in contents.files if file.ending not in VOLUMES and not file.name.endswith(_DESCRIPTION)]
    kinds = {
        f"files in other folders than {chosen.images} and {chosen.labels}": outside,
        f"files of other channels than {chosen.channel}": other_channels,
        "files that are no volumes": strangers,
    }
    return [f"{kind} are left out: {len(files):,}, such as {files[0].name}" for kind, files in kinds.items() if files]
