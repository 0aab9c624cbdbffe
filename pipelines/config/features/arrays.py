"""Settings of the encoders of arrays, images and recordings."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from pipelines.config.features.base import EncoderSettings


class Scale(EncoderSettings):
    """(x − mean) / deviation of the numbers in an array, float32, by means and deviations that are given: where windows
    overlap, the training split would count most values many times."""

    implementation: ClassVar[str] = "pipelines.features.arrays:Scale"
    encoder: Literal["scale"] = "scale"
    shape: Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
    """Of the column, such as [336, 7] for 336 hours of 7 series; every row must have it."""
    mean: tuple[float, ...]
    """One for each entry of the last axis."""
    deviation: tuple[PositiveFloat, ...]
    """One for each entry of the last axis."""

    @model_validator(mode="after")
    def _every_entry_has_its_numbers(self) -> "Scale":
        if not len(self.mean) == len(self.deviation) == self.shape[-1]:
            raise ValueError(
                f"mean has {len(self.mean)} numbers and deviation {len(self.deviation)}; "
                f"the last axis of shape {list(self.shape)} needs {self.shape[-1]} of each"
            )
        return self


class Image(EncoderSettings):
    """Pixels, uint8, channels first: from raw bytes or arrays of that shape, or from PNG and JPEG bytes."""

    implementation: ClassVar[str] = "pipelines.features.arrays:Image"
    encoder: Literal["image"] = "image"
    shape: tuple[PositiveInt, PositiveInt, PositiveInt]
    """Channels, height, width. PNG and JPEG are converted to so many channels and resized."""


class LogMel(EncoderSettings):
    """The spectrogram of a WAV file's bytes, float32 of shape (mels, frames): the logarithm of the power on the mel scale."""

    implementation: ClassVar[str] = "pipelines.features.audio:LogMel"
    encoder: Literal["log_mel"] = "log_mel"
    sample_rate: PositiveInt
    """Samples a second that every file must have; one of another rate is quarantined."""
    seconds: PositiveFloat = 1.0
    """Of the file's beginning that are taken; silence follows a shorter one."""
    mels: PositiveInt = 40
    """Bands, equally far apart on the mel scale from 0 to half the sample rate."""
    window_seconds: PositiveFloat = 0.025
    """Length of a frame."""
    hop_seconds: PositiveFloat = 0.01
    """From the beginning of a frame to that of the next."""

    @model_validator(mode="after")
    def _holds_a_frame(self) -> "LogMel":
        if self.hop_seconds * self.sample_rate < 1 or self.window_seconds * self.sample_rate < 2 or self.seconds < self.window_seconds:
            raise ValueError(
                f"seconds {self.seconds:g}, window_seconds {self.window_seconds:g}, hop_seconds {self.hop_seconds:g}: "
                "a window must fit and have two samples at least, and a hop one"
            )
        return self
