"""The parts of a config that images with masks and images with boxes have in common."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.config.messages.did_you_mean import name_list
from pipelines.errors import ConfigError
from pipelines.init.draft import Draft, KeyPath, Request
from pipelines.init.media.classes import LEAST_ROWS
from pipelines.init.media.contents import FolderContents, FoundFile
from pipelines.init.media.pictures import MOST_UNREADABLE

FEW_IMAGES = 100
"""Below which a tenth of the images could leave a split without any."""
STEM = "regexp_extract(path, '([^/]+)[.][^./]*$', 1)"
"""SQL for the name of a file without folders and ending."""


@dataclass(frozen=True)
class AnnotatedImages:
    """The annotations of images, and a training on them."""

    unit: str
    """In the plural: masks or boxes."""
    tables: Mapping[str, Any]
    query: str
    """With the columns `name`, `image`, one called as the unit, and `split` if there are splits."""
    shape: tuple[int, int, int]
    """Channels, height, width of the encoded image."""
    shape_reason: str
    encoder: Mapping[str, Any]
    encoder_reason: str
    task: Mapping[str, Any]
    task_reason: str
    train: Mapping[str, Any]
    rows: int
    tried: int
    """Images of the sample."""
    faults: Sequence[str]
    """Why ETL would refuse some of the sample."""
    splits: Sequence[str] = ()
    introduction: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


def draft_annotated(request: Request, annotation: AnnotatedImages) -> Draft:
    """The draft for images that are annotated. Raises ConfigError if they are too few, or too many of the sample would be refused."""
    check_annotation(request.data, annotation)
    refused_share, unit = len(annotation.faults) / annotation.tried, annotation.unit
    source: dict[str, Any] = {
        "tables": annotation.tables,
        "query": annotation.query,
        "expect": {"has an image": "image IS NOT NULL", f"has {unit}" if unit.endswith("s") else f"has a {unit}": f"{unit} IS NOT NULL"},
    }
    comments: dict[KeyPath, str] = {
        ("dataset", "features", "image"): annotation.shape_reason,
        ("dataset", "target", unit): annotation.encoder_reason,
        ("dataset", "split"): _split_reason(annotation.splits),
        ("task",): annotation.task_reason,
        ("train",): f"{annotation.rows:,} images in all",
    }
    assumptions = annotation.assumptions
    if annotation.faults:
        reason, count = Counter(annotation.faults).most_common(1)[0]
        refused = f"{len(annotation.faults)} of {annotation.tried} images that were tried are quarantined"
        assumptions += (f"{refused}, {count} of them because of {unit}: {reason}",)
    if refused_share > 0.01:
        source["max_quarantined"] = round(min(2 * refused_share, 1.0), 2)
        comments["source", "max_quarantined"] = f"{refused_share:.0%} of the images that were tried would be refused"
    dataset = {
        "path": f"data/{request.name}",
        "key": "name",
        "split": _split_setting(annotation.splits, annotation.rows),
        "features": {"image": {"encoder": "image", "shape": list(annotation.shape)}},
        "target": {unit: annotation.encoder},
    }
    sections = {"name": request.name, "source": source, "dataset": dataset, "task": annotation.task, "train": annotation.train}
    return Draft(sections, annotation.introduction, {path: text for path, text in comments.items() if text}, assumptions)


def check_annotation(path: str, annotation: AnnotatedImages) -> None:
    if annotation.rows < LEAST_ROWS:
        raise ConfigError(
            f"{path}: {annotation.rows} images with {annotation.unit} do not fill three splits; add some, until there are {LEAST_ROWS}"
        )
    if len(annotation.faults) > MOST_UNREADABLE * annotation.tried:
        reason = Counter(annotation.faults).most_common(1)[0][0]
        raise ConfigError(
            f"{path}: {len(annotation.faults)} of {annotation.tried} images with {annotation.unit} would be refused, most because of "
            f"{annotation.unit}: {reason}; correct those files, or remove them"
        )


def scale_size(height: int, width: int, largest: int) -> tuple[int, int]:
    """Height and width with at most `largest` pixels on a side, and 16 or more on each."""
    scale = min(1.0, largest / max(height, width))
    return max(16, round(height * scale)), max(16, round(width * scale))


def epochs_for_images(rows: int, images: int, most: int) -> int:
    """Epochs that see about so many images, from 10 to `most`."""
    return max(10, min(most, images // rows))


def choose_folder(files: Sequence[FoundFile], stems: set[str]) -> str | None:
    """The folder that has most files of these stems; None if no folder has half of them."""
    counts = Counter(file.folder for file in files if file.stem in stems)
    folder, count = min(counts.items(), key=lambda item: (-item[1], item[0]), default=("", 0))
    return folder if 2 * count > len(stems) else None


def files_in(contents: FolderContents, folder: str, endings: Sequence[str]) -> tuple[FoundFile, ...]:
    return tuple(file for file in contents.select_endings(endings) if file.folder == folder)


def _split_setting(splits: Sequence[str], rows: int) -> dict[str, Any]:
    if splits:
        return {"by": "split"} if "validation" in splits else {"by": "split", "validation": 0.1}
    return {"train": 0.6, "validation": 0.2, "test": 0.2} if rows < FEW_IMAGES else {"train": 0.8, "validation": 0.1, "test": 0.1}


def _split_reason(splits: Sequence[str]) -> str:
    return f"as the data have it: {name_list(list(splits))}" if splits else "by a hash of the name"
