"""Settings of the task `segmentation`. Imports no torch."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator

from pipelines.config.effects import OnlyWith, is_above_0, is_given
from pipelines.config.tasks.base import TaskSettings

Size = tuple[PositiveInt, PositiveInt] | tuple[PositiveInt, PositiveInt, PositiveInt]


def _changes_parts(config: Any) -> bool:
    return bool(config.task.flips or config.task.elastic or config.task.jitter)


class SegmentationSettings(TaskSettings):
    """A U-Net (Ronneberger et al. 2015; of volumes Çiçek et al. 2016) that predicts the class of each pixel or voxel: one column of images
    or volumes as feature, one of encoder `mask` as target. The loss of a row is cross-entropy plus soft Dice."""

    implementation: ClassVar[str] = "pipelines.tasks.masks.segmentation:Segmentation"
    kind: Literal["segmentation"] = "segmentation"
    width: PositiveInt = 16
    """Channels at full resolution; they double with every halving, up to 320."""
    depth: PositiveInt = 4
    """How often the resolution is halved. Images are padded to a multiple of 2^depth."""
    patch: Size | None = None
    """Training sees a part of this size at a random place of each image; by default whole images. Evaluation sees whole ones."""
    patches_per_row: Annotated[
        PositiveInt, OnlyWith(".patch", fits=is_given, remedy="set task.patch to a size such as [256, 256]", unless=_changes_parts)
    ] = 1
    """Parts of an image in each step. They are one row of the loss."""
    tile: Size | None = None
    """Images larger than this are predicted in overlapping parts of this size, whose outputs are averaged, so that a prediction's memory
    does not grow with the image. By default, they are predicted whole."""
    dice: NonNegativeFloat = 1.0
    """Weight of the soft Dice loss (Milletari et al. 2016) beside cross-entropy; 0 for cross-entropy alone."""
    flips: tuple[Annotated[int, Field(ge=0, le=2)], ...] = ()
    """Augmentation in training: axes, 0 being the first, along which half of the parts are mirrored."""
    elastic: NonNegativeFloat = 0.0
    """Augmentation in training: deviation, in pixels, of random displacements at a grid of points, smooth between them."""
    elastic_points: Annotated[int, Field(ge=2, le=64), OnlyWith(".elastic", fits=is_above_0, remedy="set task.elastic, as to 4")] = 4
    """Points of that grid along each axis."""
    jitter: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Augmentation in training: how far the tones of a part bend. Its pixels, scaled from 0 to 1, are raised to a random power between
    1 / (1 + jitter) and 1 + jitter."""
    loss: Literal["auto"] = "auto"
    """Always `auto`, because the task has a loss of its own."""
    target_weights: dict[str, NonNegativeFloat] = Field(default={}, max_length=0)
    """Always empty, because the task has a loss of its own."""
    metrics: tuple[()] = ()
    """Always empty, because the task has metrics of its own."""

    @model_validator(mode="after")
    def _sizes_have_one_dimension(self) -> "SegmentationSettings":
        if self.patch and self.tile and len(self.patch) != len(self.tile):
            raise ValueError(
                f"patch is {list(self.patch)}, but tile is {list(self.tile)}; give both two numbers for images, or three for volumes"
            )
        if len(set(self.flips)) < len(self.flips):
            raise ValueError(f"flips is {list(self.flips)}; name each axis once")
        return self
