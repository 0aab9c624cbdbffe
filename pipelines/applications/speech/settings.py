"""Settings of speech: the encoder of recordings, and the task."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from pipelines.config.features.base import EncoderSettings
from pipelines.config.tasks.base import Probability, TaskSettings


class LogMelSettings(EncoderSettings):
    """Log-mel spectrogram of the bytes of a WAV file, float32 of shape (mels, frames): the logarithm of the power on the mel scale."""

    implementation: ClassVar[str] = "pipelines.applications.speech.encoders:LogMel"
    kind_of_values: ClassVar[str] = "spectrogram"
    encoder: Literal["log_mel"] = "log_mel"
    sample_rate: PositiveInt
    """Sample rate in Hz. Files with another sample rate are quarantined."""
    seconds: PositiveFloat = 1.0
    """Length of the recording, from its start. Shorter recordings are padded with silence."""
    mels: PositiveInt = 40
    """Number of bands, evenly spaced on the mel scale from 0 to half the sample rate."""
    window_seconds: PositiveFloat = 0.025
    """Length of a frame."""
    hop_seconds: PositiveFloat = 0.01
    """Time from the start of one frame to the start of the next."""

    @model_validator(mode="after")
    def _holds_a_frame(self) -> "LogMelSettings":
        if self.hop_seconds * self.sample_rate < 1 or self.window_seconds * self.sample_rate < 2 or self.seconds < self.window_seconds:
            raise ValueError(
                f"seconds {self.seconds:g}, window_seconds {self.window_seconds:g}, hop_seconds {self.hop_seconds:g}: "
                "a window must fit into the recording and have at least two samples, and a hop at least one"
            )
        return self


class SpeechSettings(TaskSettings):
    """A convolutional network for one column of spectrograms."""

    implementation: ClassVar[str] = "pipelines.applications.speech.task:Speech"
    smooths_labels: ClassVar[bool] = True
    has_average: ClassVar[bool] = True
    kind: Literal["speech"] = "speech"
    filters: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (32, 64, 128)
    """Number of filters of each convolution."""
    dropout: Probability = 0.0
    """Dropout probability between layers, in training."""
    shift_frames: NonNegativeInt = 0
    """Augmentation in training: maximum number of frames by which a recording is shifted, in either direction."""
    masked_frames: NonNegativeInt = 0
    """Augmentation in training: maximum number of consecutive frames that are masked."""
    masked_mels: NonNegativeInt = 0
    """Augmentation in training: maximum number of adjacent bands that are masked."""
