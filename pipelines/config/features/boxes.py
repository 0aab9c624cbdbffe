"""Settings of the encoder for boxes around the objects of an image."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt, model_validator

from pipelines.config.features.base import EncoderSettings
from pipelines.config.section import Text

NO_BOX = -1
"""Class of the boxes that pad a row."""
MOST_BOXES = 1000


class BoxesSettings(EncoderSettings):
    """Boxes around objects, as float32 of shape (most, 5): class, left, top, right, bottom in pixels of the encoded image, and class −1 in
    free places. From Pascal VOC's XML files, or from arrays of structs (class, left, top, right, bottom), as a query makes of COCO's
    JSON. A row is quarantined if a box has no area, an unknown class, or lies outside its image."""

    implementation: ClassVar[str] = "pipelines.data.features.media.boxes:Boxes"
    kind_of_values: ClassVar[str] = "boxes"
    encoder: Literal["boxes"] = "boxes"
    shape: tuple[PositiveInt, PositiveInt]
    """Height and width of the encoded image, to which boxes are scaled."""
    classes: Annotated[tuple[Text, ...], Field(min_length=1, max_length=MOST_BOXES)]
    """Names of the classes."""
    most: Annotated[int, Field(ge=1, le=MOST_BOXES)] = 100
    """Boxes that a row has room for; a row with more is quarantined."""
    image: str = ""
    """Column of the query with the PNG or JPEG file of the image, whose size in pixels boxes are measured in. A VOC file that names another
    size is quarantined. Without it, VOC files are taken at their word, and arrays are in pixels of `shape`; boxes are then of the image as
    viewers show it. With it, the size in a VOC file, or `image_width` and `image_height` of the structs, tells whether the boxes of a
    photograph that is stored turned are turned too."""

    @property
    def encodes_with(self) -> tuple[str, ...]:
        return ("pillow",) if self.image else ()

    @model_validator(mode="after")
    def _classes_differ(self) -> "BoxesSettings":
        if len({name.casefold() for name in self.classes}) < len(self.classes):
            raise ValueError(f"classes is {list(self.classes)}; name each class once, for columns of predictions have names without case")
        return self

    def inputs(self, feature: str) -> tuple[str, ...]:
        boxes = self.column or feature
        return (boxes, self.image) if self.image else (boxes,)
