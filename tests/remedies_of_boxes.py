"""Remedies of errors about boxes: what raises each, and what it offers instead."""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import PIL.Image
import pyarrow as pa
from remedy_cases import Do

from pipelines.applications.detection.encoders import Boxes
from pipelines.applications.detection.settings import BoxesSettings, DetectionSettings
from pipelines.applications.detection.task import Detection
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.schema import TensorColumn
from pipelines.tasks.data import Data

IMAGE = TensorColumn(name="image", dtype="uint8", shape=(3, 20, 28))
BOXES = TensorColumn(name="boxes", dtype="float32", shape=(4, 5), role="target")
TWO_BOXES = [{"class": "a", "left": 0.0, "top": 0.0, "right": 4.0, "bottom": 4.0}] * 2


def boxes(**settings: Any) -> Callable[[Path], Any]:
    return lambda folder: BoxesSettings(**{"shape": (20, 28), "classes": ["a", "b"], **settings})


def task(**settings: Any) -> Callable[[Path], Any]:
    return lambda folder: DetectionSettings(**settings)


def sizes(shape: list[int]) -> Callable[[Path], Any]:
    fitted = FittedEncoder(feature={"encoder": "boxes", "shape": shape}, inputs=("boxes",), state={}, column=BOXES)
    return lambda folder: Detection(DetectionSettings(), Data((IMAGE, BOXES), ("a",), encoders={"boxes": fitted}))


def room(most: int) -> Callable[[Path], Any]:
    """Raises the reason for which a row is quarantined."""

    def encode(folder: Path) -> None:
        encoder = Boxes(BoxesSettings(shape=(20, 28), classes=("a",), most=most), {})
        if encoder.encode(pa.array([TWO_BOXES])).null_count:
            raise ValueError(encoder.fault(TWO_BOXES))

    return encode


def photograph(orientation: int, **size: int) -> Callable[[Path], Any]:
    """Raises the reason for which a photograph of 28x20 stored pixels with boxes is quarantined."""

    def encode(folder: Path) -> None:
        exif, file = PIL.Image.Exif(), BytesIO()
        exif[274] = orientation
        PIL.Image.new("RGB", (28, 20)).save(file, "PNG", exif=exif)
        encoder = Boxes(BoxesSettings(shape=(20, 28), classes=("a",), image="image"), {})
        boxes_with_size = [{**box, **size} for box in TWO_BOXES]
        if encoder.encode(pa.array([boxes_with_size]), pa.array([file.getvalue()])).null_count:
            raise ValueError(encoder.fault(boxes_with_size, file.getvalue()))

    return encode


CASES: dict[str, tuple[Do, tuple[Do, ...]]] = {
    "classes is {}; name each class once": (boxes(classes=["a", "a"]), (boxes(classes=["a"]),)),
    "set stages to 2 or more, or stride to 4": (task(stride=8, stages=1), (task(stride=8, stages=2), task(stride=4, stages=1))),
    "would not lie on their objects; set it to": (sizes([20, 20]), (sizes([20, 28]),)),
    "and there is room for {}; raise most": (room(1), (room(2),)),
    "give it the size of the image that it was drawn on, or ": (
        photograph(6),
        (photograph(6, image_width=28, image_height=20), photograph(1)),
    ),
}
