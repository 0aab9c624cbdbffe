"""Settings of the encoders for weights and for targets with rules of their own."""

from typing import ClassVar, Literal

from pipelines.config.features.base import EncoderSettings


class WeightSettings(EncoderSettings):
    """The weight of a row in the loss, for `task.sample_weight`: a number of at least 0, divided by the mean of the training split, as
    float32. Rows with a negative number, NaN, ±∞ or NULL are quarantined."""

    implementation: ClassVar[str] = "pipelines.data.features.targets:Weight"
    encoder: Literal["weight"] = "weight"
