"""Encoder of boxes around the objects of an image."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types

from pipelines.config import features as config
from pipelines.config.features.boxes import NO_BOX
from pipelines.data.features.arrays import is_bytes
from pipelines.data.features.base import Encoder, tensors_with_nulls
from pipelines.data.features.media.masks import read_picture
from pipelines.data.features.media.nifti import UnreadableError
from pipelines.data.features.media.voc import Annotation, Box, read_voc
from pipelines.data.features.raw import is_list, is_number, is_text
from pipelines.data.versions.schema import Role, TensorColumn

EDGES = ("left", "top", "right", "bottom")
OUTSIDE = 1.0
"""Pixels of the image by which a box may lie outside; it is cut off there."""


class Boxes(Encoder[config.BoxesSettings]):
    """float32 of shape (most, 5): class, left, top, right, bottom in pixels of the encoded image, sorted; class −1 in free places."""

    @classmethod
    def refusal(cls, settings: config.BoxesSettings, kind: pa.DataType) -> str:
        if is_bytes(kind) or is_text(kind) or (is_list(kind) and _is_box(kind.value_type)):
            return ""
        return f"it takes VOC files, as bytes or text, or arrays of structs of text `class` and numbers {', '.join(EDGES)}"

    def column(self, name: str, role: Role) -> TensorColumn:
        return TensorColumn(name=name, dtype="float32", shape=(self.settings.most, 5), role=role)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.settings.classes

    def encode(self, *inputs: pa.Array) -> pa.Array:
        encoded, refused = np.zeros((len(inputs[0]), self.settings.most, 5), np.float32), np.zeros(len(inputs[0]), bool)
        encoded[..., 0] = NO_BOX
        for row in range(len(encoded)):
            try:
                boxes = self._boxes(*(column[row].as_py() for column in inputs))
            except UnreadableError:
                refused[row] = True
                continue
            encoded[row, : len(boxes)] = boxes
        return tensors_with_nulls(encoded, refused)

    def fault(self, *values: Any) -> str:
        try:
            self._boxes(*values)
        except UnreadableError as error:
            return str(error)
        return ""

    def _boxes(self, content: Any, image: Any = None) -> np.ndarray:
        """Boxes of shape (boxes, 5). Raises UnreadableError with the reason why there are none."""
        if content is None:
            raise UnreadableError("")
        annotation = (
            read_voc(content.encode() if isinstance(content, str) else content, "utf-8" if isinstance(content, str) else None)
            if isinstance(content, (str, bytes))
            else _read_structs(content)
        )
        height, width = self.settings.shape
        size = annotation.size or (width, height)
        if self.settings.image:
            if not isinstance(image, bytes | None):
                raise UnreadableError("its image is no PNG or JPEG file, as bytes")
            size = read_picture(image or b"", ("PNG", "JPEG"), "PNG or JPEG", lambda picture: picture.size, "its image")
            if annotation.size not in (None, size):
                raise UnreadableError(f"it is for {_size_text(annotation.size)} pixels, but its image has {_size_text(size)}")
        if min(size) < 1:
            raise UnreadableError(f"it is for {_size_text(size)} pixels")
        if len(annotation.boxes) > self.settings.most:
            raise UnreadableError(f"it has {len(annotation.boxes)} boxes, and there is room for {self.settings.most}; raise most")
        boxes = [(self._class_number(box.name), *_cut(box, size)) for box in annotation.boxes]
        scale = [1, width / size[0], height / size[1], width / size[0], height / size[1]]
        scaled = (np.array(sorted(boxes), np.float64).reshape(-1, 5) * scale).astype(np.float32)
        if (scaled[:, 1:3] >= scaled[:, 3:]).any():
            raise UnreadableError("a box has no area")
        return scaled

    def _class_number(self, name: str) -> int:
        if name not in self.settings.classes:
            raise UnreadableError(f"the class {name[:40] or 'without a name'} is none of {list(self.settings.classes)}")
        return self.settings.classes.index(name)


def _read_structs(values: Sequence[Mapping[str, Any] | None]) -> Annotation:
    boxes = []
    for number, value in enumerate(values, 1):
        named = value or {}
        edges = tuple(float("nan") if named.get(edge) is None else float(named[edge]) for edge in EDGES)
        if named.get("class") is None or not np.isfinite(edges).all():
            raise UnreadableError(f"box {number} lacks its class, or a number")
        low_x, low_y, high_x, high_y = edges
        if not (low_x < high_x and low_y < high_y):
            raise UnreadableError(f"box {number} has no area: {low_x:g} to {high_x:g}, {low_y:g} to {high_y:g}")
        boxes.append(Box(str(named["class"]), (low_x, low_y, high_x, high_y)))
    return Annotation(None, boxes)


def _cut(box: Box, size: tuple[int, int]) -> list[float]:
    """The edges of a box inside its image. Raises UnreadableError if it lies outside by more than a pixel."""
    low_x, low_y, high_x, high_y = box.edges
    width, height = size
    edges = [max(low_x, 0.0), max(low_y, 0.0), min(high_x, width), min(high_y, height)]
    is_outside = min(low_x, low_y) < -OUTSIDE or high_x > width + OUTSIDE or high_y > height + OUTSIDE
    if is_outside or edges[0] >= edges[2] or edges[1] >= edges[3]:
        raise UnreadableError(
            f"a box lies outside its image of {_size_text(size)} pixels: {low_x:g} to {high_x:g}, {low_y:g} to {high_y:g}"
        )
    return edges


def _is_box(kind: pa.DataType) -> bool:
    fields = {field.name: field.type for field in kind} if types.is_struct(kind) else {}
    return is_text(fields.get("class", pa.null())) and all(is_number(fields.get(edge, pa.null())) for edge in EDGES)


def _size_text(size: tuple[int, int] | None) -> str:
    return "x".join(map(str, size or ()))
