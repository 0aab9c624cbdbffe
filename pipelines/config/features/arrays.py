"""Settings of the encoders for arrays, images and recordings."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from pipelines.config.features.base import EncoderSettings
from pipelines.config.section import Text


class ScaleSettings(EncoderSettings):
    """(x − mean) / deviation for each number of an array, as float32. Means and deviations are given, or those of columns of the query in
    the training split: not of the arrays, which contain most values many times if windows overlap."""

    implementation: ClassVar[str] = "pipelines.data.features.arrays:Scale"
    kind_of_values: ClassVar[str] = "array"
    encoder: Literal["scale"] = "scale"
    shape: Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
    """Shape of the arrays, such as [336, 7] for 336 hours of 7 series; every row must have this shape. `history` and `future` of
    `source.windows` have theirs by default."""
    mean: tuple[float, ...] = ()
    """Mean of each entry of the last axis; one for all is enough."""
    deviation: tuple[PositiveFloat, ...] = ()
    """Standard deviation of each entry of the last axis, or one for all."""
    moments_of: tuple[Text, ...] = Field((), exclude_if=lambda columns: not columns)
    """Columns of the query, one for each entry of the last axis or one for all, whose mean and deviation in the training split are taken.
    `history` and `future` of `source.windows` are fitted on its `columns` by default."""

    @model_validator(mode="after")
    def _every_entry_has_its_numbers(self) -> "ScaleSettings":
        entries = self.shape[-1]
        if self.moments_of and (self.mean or self.deviation):
            raise ValueError("moments_of is set, and so is mean or deviation; remove moments_of, or mean and deviation")
        if self.moments_of and len(self.moments_of) not in (1, entries):
            raise ValueError(
                f"moments_of has {len(self.moments_of)} columns; the last axis of shape {list(self.shape)} needs {entries}, one an "
                "entry, or one for all"
            )
        if not self.moments_of and not (len(self.mean) == len(self.deviation) and len(self.mean) in (1, entries)):
            raise ValueError(
                f"mean has {len(self.mean)} numbers and deviation {len(self.deviation)}; "
                f"the last axis of shape {list(self.shape)} needs {entries} of each, or one for all, or such columns in moments_of"
            )
        return self

    def learns_from(self, feature: str) -> tuple[str, ...]:
        return self.moments_of or self.inputs(feature)


class ImageSettings(EncoderSettings):
    """Pixels as uint8, channels first, from PNG or JPEG files, or from raw bytes or arrays of that shape."""

    implementation: ClassVar[str] = "pipelines.data.features.arrays:Image"
    kind_of_values: ClassVar[str] = "image"
    encoder: Literal["image"] = "image"
    shape: tuple[PositiveInt, PositiveInt, PositiveInt]
    """Channels, height, width. PNG and JPEG images are turned as EXIF's orientation says, converted to this number of channels, and
    resized."""

    @property
    def encodes_with(self) -> tuple[str, ...]:
        return ("pillow",)
