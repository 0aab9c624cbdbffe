"""Encoder of boxes around the objects of an image, from Pascal VOC's XML files (Everingham et al. 2010) or from arrays of structs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers.expat import ExpatError, ParserCreate

import numpy as np
import pyarrow as pa
import pyarrow.types as types

from pipelines.applications.detection.predicted_boxes import NO_BOX
from pipelines.data.features.arrays import is_bytes
from pipelines.data.features.base import FileEncoder
from pipelines.data.features.media_files import UnreadableError
from pipelines.data.features.picture_files import Frame, Size, extent_text, read_frame
from pipelines.data.features.raw import is_list, is_number, is_text
from pipelines.data.versions.schema import Role, TensorColumn

if TYPE_CHECKING:
    from pipelines.applications.detection.settings import BoxesSettings

EDGES = ("left", "top", "right", "bottom")
SIZE = ("image_width", "image_height")
"""Fields that a struct may have besides: the pixels of the image that its box was drawn on."""
OUTSIDE = 1.0
"""Pixels of the image by which a box may lie outside; it is cut off there."""
MOST_BYTES, _MOST_DEPTH = 4 * 2**20, 16
"""The largest file, and its most elements inside each other, that are read: a larger one is no annotation."""
VOC_EDGES = ("xmin", "ymin", "xmax", "ymax")
Edges = tuple[float, float, float, float]
"""Left, top, right, bottom."""


@dataclass(frozen=True)
class Box:
    """A box in pixels of its image, from 0 at the left and at the top."""

    name: str
    """Of its class."""
    edges: Edges


@dataclass(frozen=True)
class Annotation:
    size: tuple[int, int] | None
    """Width and height of the image, if the file names them."""
    boxes: list[Box]


class Boxes(FileEncoder["BoxesSettings"]):
    """float32 of shape (most, 5): class, left, top, right, bottom in pixels of the encoded image, sorted; class −1 in free places."""

    @classmethod
    def refusal(cls, settings: BoxesSettings, kind: pa.DataType) -> str:
        struct = kind.value_type if is_list(kind) else kind
        fields = {field.name: field.type for field in struct} if is_list(kind) and types.is_struct(struct) else {}
        numbers = [fields.get(edge, pa.null()) for edge in EDGES] + [fields[name] for name in SIZE if name in fields]
        if is_bytes(kind) or is_text(kind) or (is_text(fields.get("class", pa.null())) and all(map(is_number, numbers))):
            return ""
        return f"it takes VOC files, as bytes or text, or arrays of structs of text `class` and numbers {', '.join(EDGES)}"

    def column(self, name: str, role: Role) -> TensorColumn:
        return TensorColumn(name=name, dtype="float32", shape=(self.settings.most, 5), role=role)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.settings.classes

    def read(self, content: Any, image: Any = None) -> np.ndarray:
        annotation = _read_annotation(content)
        height, width = self.settings.shape
        size = annotation.size or (width, height)
        if self.settings.image:
            if not isinstance(image, bytes | None):
                raise UnreadableError("its image is no PNG or JPEG file, as bytes")
            frame = read_frame(image)
            size = frame.shown
            if annotation.size and not frame.fits(annotation.size):
                raise UnreadableError(f"it is for {extent_text(annotation.size)} pixels, but its image has {extent_text(size)}")
            annotation = _as_shown(annotation, frame)
        if min(size) < 1:
            raise UnreadableError(f"it is for {extent_text(size)} pixels")
        if len(annotation.boxes) > self.settings.most:
            raise UnreadableError(f"it has {len(annotation.boxes)} boxes, and there is room for {self.settings.most}; raise most")
        boxes = []
        for box in annotation.boxes:
            if box.name not in self.settings.classes:
                raise UnreadableError(f"the class {box.name[:40] or 'without a name'} is none of {list(self.settings.classes)}")
            boxes.append((self.settings.classes.index(box.name), *_cut(box, size)))
        scale = [1, width / size[0], height / size[1], width / size[0], height / size[1]]
        scaled = (np.array(sorted(boxes), np.float64).reshape(-1, 5) * scale).astype(np.float32)
        if (scaled[:, 1:3] >= scaled[:, 3:]).any():
            raise UnreadableError("a box has no area")
        encoded = np.zeros((self.settings.most, 5), np.float32)
        encoded[:, 0] = NO_BOX
        encoded[: len(scaled)] = scaled
        return encoded


def _as_shown(annotation: Annotation, frame: Frame) -> Annotation:
    """Boxes in the pixels of an image as it is shown. Raises UnreadableError if nothing tells whether they are for the stored ones."""
    if not annotation.boxes or not frame.is_stored(annotation.size, "give it the size of the image that it was drawn on, or "):
        return annotation
    width, height = frame.shown

    def turn(low_x: float, low_y: float, high_x: float, high_y: float) -> Edges:
        """Edges of a stored box whose sides are swapped, as orientations do whose sizes can tell."""
        low_x, low_y, high_x, high_y = low_y, low_x, high_y, high_x
        if frame.orientation in (6, 7):
            low_x, high_x = width - high_x, width - low_x
        if frame.orientation in (7, 8):
            low_y, high_y = height - high_y, height - low_y
        return low_x, low_y, high_x, high_y

    return Annotation(frame.shown, [Box(box.name, turn(*box.edges)) for box in annotation.boxes])


def _read_annotation(content: Any) -> Annotation:
    if content is None:
        raise UnreadableError("")
    if isinstance(content, str):
        return read_voc(content.encode(), "utf-8")
    return read_voc(content) if isinstance(content, bytes) else _read_structs(content)


def _read_structs(values: Sequence[Mapping[str, Any] | None]) -> Annotation:
    boxes, sizes = [], set[Size]()
    for number, value in enumerate(values, 1):
        fields = value or {}
        if all(fields.get(name) is not None for name in SIZE):
            sizes.add((int(fields[SIZE[0]]), int(fields[SIZE[1]])))
        edges = tuple(float("nan") if fields.get(edge) is None else float(fields[edge]) for edge in EDGES)
        if fields.get("class") is None or not np.isfinite(edges).all():
            raise UnreadableError(f"box {number} lacks its class, or a number")
        low_x, low_y, high_x, high_y = edges
        if not (low_x < high_x and low_y < high_y):
            raise UnreadableError(f"box {number} has no area: {low_x:g} to {high_x:g}, {low_y:g} to {high_y:g}")
        boxes.append(Box(str(fields["class"]), (low_x, low_y, high_x, high_y)))
    if len(sizes) > 1:
        raise UnreadableError(f"its boxes are for images of {' and '.join(map(extent_text, sorted(sizes)))} pixels")
    return Annotation(next(iter(sizes), None), boxes)


def _cut(box: Box, size: Size) -> list[float]:
    """The edges of a box inside its image. Raises UnreadableError if it lies outside by more than a pixel."""
    low_x, low_y, high_x, high_y = box.edges
    width, height = size
    edges = [max(low_x, 0.0), max(low_y, 0.0), min(high_x, width), min(high_y, height)]
    is_outside = min(low_x, low_y) < -OUTSIDE or high_x > width + OUTSIDE or high_y > height + OUTSIDE
    if is_outside or edges[0] >= edges[2] or edges[1] >= edges[3]:
        place = f"{low_x:g} to {high_x:g}, {low_y:g} to {high_y:g}"
        raise UnreadableError(f"a box lies outside its image of {extent_text(size)} pixels: {place}")
    return edges


def read_voc(content: bytes, encoding: str | None = None) -> Annotation:
    """The boxes of a file, whose pixels are counted from 1, and of which the last one is inside.

    `encoding` is that of a text which has been encoded again; by default, the file names its own. Raises UnreadableError if it is no such
    file, or if a box has no area.
    """
    root = _parse(content, encoding)
    if root.tag != "annotation":
        raise UnreadableError(f"its root is {root.tag[:40]}, and not annotation, so it is no VOC file")
    boxes = []
    for number, element in enumerate(root.findall("object"), 1):
        name = (element.findtext("name") or "").strip()
        low_x, low_y, high_x, high_y = (_number(element, f"bndbox/{edge}", f"object {number}") for edge in VOC_EDGES)
        if not (low_x < high_x and low_y < high_y):
            raise UnreadableError(f"object {number} has no area: {low_x:g} to {high_x:g}, {low_y:g} to {high_y:g}")
        boxes.append(Box(name, (low_x - 1, low_y - 1, high_x, high_y)))
    size = root.find("size")
    if size is None:
        return Annotation(None, boxes)
    width, height = (int(_number(size, name, "size")) for name in ("width", "height"))
    return Annotation((width, height), boxes)


def _parse(content: bytes, encoding: str | None) -> Element:
    """The root of a document. One with a DTD, whose entities could grow without bounds or name other files, is refused."""
    if len(content) > MOST_BYTES:
        raise UnreadableError(f"it has {len(content):,} bytes, more than {MOST_BYTES:,}")
    builder, depth = TreeBuilder(), 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _MOST_DEPTH:
            raise UnreadableError(f"its elements are more than {_MOST_DEPTH} deep")
        builder.start(tag, attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    def refuse(*_: object) -> None:
        raise UnreadableError("it has a DTD, which VOC files have not")

    parser = ParserCreate(encoding)
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, builder.data
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(content, True)
    except UnreadableError:
        raise
    except (ExpatError, LookupError, ValueError) as error:  # the last two of an unknown encoding
        raise UnreadableError("it is no XML file, or is damaged") from error
    return builder.close()


def _number(element: Element, path: str, where: str) -> float:
    try:
        number = float(element.findtext(path) or "")
    except ValueError:
        number = float("nan")
    if not abs(number) < 1e9:
        raise UnreadableError(f"{where} has no number {path}")
    return number
