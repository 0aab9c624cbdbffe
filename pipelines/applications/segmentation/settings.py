"""Settings of segmentation: the encoders of volumes and of masks, and the task."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from pipelines.config.effects import OnlyWith, is_above_0, is_given
from pipelines.config.features.base import EncoderSettings
from pipelines.config.section import Text
from pipelines.config.tasks.base import TaskSettings

Spacing = tuple[PositiveFloat, PositiveFloat, PositiveFloat]
Size = tuple[PositiveInt, PositiveInt] | tuple[PositiveInt, PositiveInt, PositiveInt]
MOST_CLASSES = 255
"""So many, and no more, are told apart by uint8."""


class VolumeSettings(EncoderSettings):
    """A NIfTI file, gzipped or not, as one channel of float16 or float32: turned to the axes right, anterior, superior; cut or padded at
    all sides to one shape. A file without an orientation, or with several volumes, is quarantined. Needs nibabel."""

    implementation: ClassVar[str] = "pipelines.applications.segmentation.encoders:Volume"
    distributions: ClassVar[tuple[str, ...]] = ("nibabel",)
    encodes_with: ClassVar[tuple[str, ...]] = distributions
    kind_of_values: ClassVar[str] = "volume"
    encoder: Literal["volume"] = "volume"
    shape: tuple[PositiveInt, PositiveInt, PositiveInt]
    """Voxels to the right, to the front and upwards. Smaller volumes are padded with 0, which is the mean after
    `z_score`, and of larger ones the middle is kept."""
    spacing: Spacing | None = None
    """Millimetres between voxels along each axis, to which every volume is resampled (linear); by default, voxels stay as they are."""
    normalize: Literal["z_score", "none"] = "z_score"
    """`z_score` subtracts the mean of the volume and divides by its deviation, before padding: scanners have no common unit."""
    dtype: Literal["float16", "float32"] = "float16"
    """How voxels are stored. float16 has three digits, and half the size."""


class MaskSettings(EncoderSettings):
    """The class of each pixel or voxel, as uint8: from PNG files of grey values or of palette indices, from NIfTI files, from raw bytes, or
    from arrays. A row whose mask has another size, or a value that stands for no class, is quarantined."""

    implementation: ClassVar[str] = "pipelines.applications.segmentation.encoders:Mask"
    kind_of_values: ClassVar[str] = "mask"
    encoder: Literal["mask"] = "mask"
    shape: Annotated[tuple[PositiveInt, ...], Field(min_length=2, max_length=3)]
    """Height and width; or voxels to the right, to the front and upwards, as of the encoder `volume`, whose padding has the first class."""
    classes: Annotated[tuple[Text, ...], Field(min_length=2, max_length=MOST_CLASSES)]
    """Names of the classes. The first one is the background, which Dice leaves out."""
    values: tuple[int, ...] = ()
    """The value that stands for each class in the files, such as [0, 255]; by default 0, 1, 2, …"""
    image: str = ""
    """Column of the query with the image or volume of the mask, both as files. If it has another size or, of volumes, another place,
    the row is quarantined. With it, the mask of a photograph that is stored turned is turned too; without it, masks are as viewers show
    both."""
    resize: bool = False
    """Brings masks of another size to the shape (nearest neighbour, as class numbers have no means in between). By default, such rows are
    quarantined."""
    spacing: Spacing | None = None
    """Of volumes: as of the encoder `volume`, but resampled by nearest neighbour."""

    @model_validator(mode="after")
    def _settings_fit_each_other(self) -> "MaskSettings":
        if self.values and len(self.values) != len(self.classes):
            raise ValueError(f"values has {len(self.values)} numbers, but classes has {len(self.classes)}; give one number for each class")
        if len(set(self.values)) < len(self.values) or len(set(self.classes)) < len(self.classes):
            raise ValueError("classes and values name each class once; remove the repetition")
        if len(self.shape) == 2 and self.spacing:
            raise ValueError(f"spacing is {list(self.spacing)}, which is for volumes; remove it, or give shape three numbers")
        if len(self.shape) == 3 and self.resize:
            raise ValueError("resize is for images; set spacing, to which volumes are resampled, or remove resize")
        return self

    def inputs(self, feature: str) -> tuple[str, ...]:
        mask = self.column or feature
        return (mask, self.image) if self.image else (mask,)

    @property
    def encodes_with(self) -> tuple[str, ...]:
        return self.distributions or ("pillow",)

    @property
    def distributions(self) -> tuple[str, ...]:
        return ("nibabel",) if len(self.shape) == 3 else ()


def _changes_parts(config: Any) -> bool:
    return bool(config.task.flips or config.task.elastic or config.task.jitter)


class SegmentationSettings(TaskSettings):
    """A U-Net (Ronneberger et al. 2015; of volumes Çiçek et al. 2016) that predicts the class of each pixel or voxel: one column of images
    or volumes as feature, one of encoder `mask` as target. The loss of a row is cross-entropy plus soft Dice."""

    implementation: ClassVar[str] = "pipelines.applications.segmentation.task:Segmentation"
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
