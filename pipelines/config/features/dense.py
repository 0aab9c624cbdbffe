"""Settings of the encoders for volumes, and for masks of images and volumes."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from pipelines.config.features.base import EncoderSettings
from pipelines.config.section import Text

Spacing = tuple[PositiveFloat, PositiveFloat, PositiveFloat]
MOST_CLASSES = 255


class VolumeSettings(EncoderSettings):
    """A NIfTI file, gzipped or not, as one channel of float16 or float32: turned to the axes right, anterior, superior; cut or padded at
    all sides to one shape. A file without an orientation, or with several volumes, is quarantined. Needs nibabel."""

    implementation: ClassVar[str] = "pipelines.data.features.media.volumes:Volume"
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

    @property
    def encodes_with(self) -> tuple[str, ...]:
        return self.distributions

    @property
    def distributions(self) -> tuple[str, ...]:
        return ("nibabel",)


class MaskSettings(EncoderSettings):
    """The class of each pixel or voxel, as uint8: from PNG files of grey values or of palette indices, from NIfTI files, from raw bytes, or
    from arrays. A row whose mask has another size, or a value that stands for no class, is quarantined."""

    implementation: ClassVar[str] = "pipelines.data.features.media.masks:Mask"
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
    def _values_name_classes(self) -> "MaskSettings":
        if self.values and len(self.values) != len(self.classes):
            raise ValueError(f"values has {len(self.values)} numbers, but classes has {len(self.classes)}; give one number for each class")
        if len(set(self.values)) < len(self.values) or len(set(self.classes)) < len(self.classes):
            raise ValueError("classes and values name each class once; remove the repetition")
        return self

    @model_validator(mode="after")
    def _has_settings_of_its_dimension(self) -> "MaskSettings":
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
