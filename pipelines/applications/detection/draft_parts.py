"""The parts of a config for images with boxes, from VOC files or COCO's JSON alike."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from pipelines.applications.detection.encoder import Boxes
from pipelines.applications.detection.settings import MOST_BOXES, BoxesSettings
from pipelines.errors import ConfigError
from pipelines.init.draft import Draft, Request
from pipelines.init.media.annotated import (
    AnnotatedImages,
    AnnotatedRows,
    ChosenSettings,
    draft_annotated,
    image_choice,
    scale_size,
    train_settings,
)
from pipelines.init.media.file_table import SampledFiles
from pipelines.init.media.pictures import look_at_images

LARGEST_SIDE = 320
SMALL_SIDE = 16
"""Pixels of the encoded image. If the shorter side of half of the boxes is below, the output has a cell for 4 pixels instead of 8."""


@dataclass(frozen=True)
class LabelledImages:
    """Images, and the boxes of each by the name of the image."""

    images: SampledFiles
    tables: dict[str, Any]
    query: str
    boxes: dict[str, Any]
    """Files or arrays as the encoder takes them; of a sample."""
    class_names: dict[str, list[str]]
    """The class of each box, by image."""
    sides: Sequence[float]
    """The shorter sides of boxes in pixels of their files."""
    rows: int
    splits: Sequence[str] = ()


def draft_objects(request: Request, labelled: LabelledImages) -> Draft:
    """The draft for images with boxes. Raises ConfigError if there is no box."""
    classes = Counter(name for names in labelled.class_names.values() for name in names)
    if not classes:
        raise ConfigError(f"{request.data}: none of the {labelled.rows} images has a box; add boxes, or name another folder")
    look = look_at_images(request.data, labelled.images)
    size = scale_size(look.height, look.width, LARGEST_SIDE)
    most_boxes = max(map(len, labelled.class_names.values()))
    encoder = _encoder(size, sorted(classes), most_boxes)
    faults = list(_faults(encoder, labelled))
    median_side = median(labelled.sides) * size[0] / look.height
    task = {"kind": "detection", "stride": 4 if median_side < SMALL_SIDE else 8, "flips": [1], "zoom": 0.3, "jitter": 0.2}
    listed = ", ".join(f"{name} ({count:,})" for name, count in classes.most_common(5)) + (", …" if len(classes) > 5 else "")
    return draft_annotated(
        request,
        AnnotatedImages(
            noun="images",
            unit="boxes",
            source={"tables": labelled.tables, "query": labelled.query},
            image=image_choice(look, (3, *size), LARGEST_SIDE),
            annotation=ChosenSettings(
                encoder, f"at most {most_boxes} boxes in one of {len(labelled.class_names):,} images, with {len(classes)} classes"
            ),
            task=ChosenSettings(task, f"half of the boxes have a shorter side of less than {median_side:.0f} pixels, as encoded"),
            train=train_settings(labelled.rows, images=10_000, most_epochs=60, batch=8, rate=2e-3),
            rows=AnnotatedRows(labelled.rows, max(1, len(labelled.boxes)), faults),
            splits=labelled.splits,
            introduction=(
                f"{labelled.rows:,} images with boxes of {len(classes)} classes: {listed}.",
                "Training needs faster-coco-eval: pip install 'lockstep-pipelines[detection]'",
            ),
        ),
    )


def _encoder(size: tuple[int, int], classes: Sequence[str], most_boxes: int) -> dict[str, Any]:
    """Settings of the encoder, with room for a quarter more boxes than an image of the sample has."""
    room = min(MOST_BOXES, most_boxes + max(5, most_boxes // 4))
    return {"encoder": "boxes", "shape": list(size), "classes": list(classes), "most": room, "image": "image"}


def _faults(encoder: dict[str, Any], labelled: LabelledImages) -> Iterable[str]:
    """Why ETL would refuse images of the sample."""
    boxes, contents = Boxes(BoxesSettings(**encoder), {}), {file.stem: file for file in labelled.images.files}
    for name, value in labelled.boxes.items():
        if fault := boxes.fault(value, labelled.images.read(contents[name])):
            yield f"boxes: {fault}"
