"""Settings of detection: the encoder of boxes, and the task."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator

from pipelines.config.features.base import EncoderSettings
from pipelines.config.section import Text
from pipelines.config.tasks.base import TaskSettings

MOST_BOXES = 1000


class BoxesSettings(EncoderSettings):
    """Boxes around objects, as float32 of shape (most, 5): class, left, top, right, bottom in pixels of the encoded image, and class −1 in
    free places. From Pascal VOC's XML files, or from arrays of structs (class, left, top, right, bottom), as a query makes of COCO's
    JSON. A row is quarantined if a box has no area, an unknown class, or lies outside its image."""

    implementation: ClassVar[str] = "pipelines.applications.detection.encoders:Boxes"
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


Score = Annotated[float, Field(ge=0, lt=1)]


class DetectionSettings(TaskSettings):
    """Finds objects in images: one column of encoder `image` as feature, one of encoder `boxes` as target. A convolutional network with a
    feature pyramid (Lin et al. 2017) marks the middle of each object and the distances to its four edges, as CenterNet (Zhou et al. 2019)
    and TTFNet (Liu et al. 2020) do. The loss of a row is focal loss plus GIoU."""

    implementation: ClassVar[str] = "pipelines.applications.detection.task:Detection"
    kind: Literal["detection"] = "detection"
    width: PositiveInt = 32
    """Channels at a quarter of the resolution; they double with every halving."""
    stages: Annotated[int, Field(ge=1, le=5)] = 4
    """Resolutions of the network: a quarter, an eighth, and so on. With 4, the coarsest one has a cell for 32 pixels."""
    blocks: PositiveInt = 1
    """Residual blocks of each resolution."""
    stride: Literal[4, 8] = 4
    """Pixels between two cells of the output along each axis. Two objects of a class in one cell are one."""
    head: PositiveInt = 48
    """Channels of the layers that come before the output."""
    box_weight: NonNegativeFloat = 5.0
    """Weight of the loss of the boxes beside that of the classes."""
    flips: tuple[Annotated[int, Field(ge=0, le=1)], ...] = ()
    """Augmentation in training: axes, 0 being the vertical one, along which half of the images are mirrored."""
    zoom: Annotated[float, Field(ge=0, le=3)] = 0.0
    """Augmentation in training: images are enlarged, or shrunk, by a random factor between 1 / (1 + zoom) and 1 + zoom, and moved at random
    inside their frame. A box of which less than a third stays visible is left out."""
    jitter: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Augmentation in training: brightness, contrast and each channel change by a random factor between 1 / (1 + jitter) and 1 + jitter."""
    boxes: Annotated[int, Field(ge=1, le=1000)] = 100
    """Boxes of an image that are predicted at most, those with the highest scores."""
    min_score: Score = 0.3
    """Score below which a box is not predicted. Metrics of precision count all scores."""
    class_weights: Literal["none"] = "none"
    """Always `none`, because a row has objects of several classes."""
    loss: Literal["auto"] = "auto"
    """Always `auto`, because the task has a loss of its own."""
    target_weights: dict[str, NonNegativeFloat] = Field(default={}, max_length=0)
    """Always empty, because the task has a loss of its own."""
    metrics: tuple[()] = ()
    """Always empty, because the task has metrics of its own."""

    @model_validator(mode="after")
    def _settings_fit_each_other(self) -> "DetectionSettings":
        if self.stride == 8 and self.stages == 1:
            raise ValueError("stride is 8, but stages is 1, which ends at 4; set stages to 2 or more, or stride to 4")
        if len(set(self.flips)) < len(self.flips):
            raise ValueError(f"flips is {list(self.flips)}; name each axis once")
        return self
