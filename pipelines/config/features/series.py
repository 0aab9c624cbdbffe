"""Settings of the encoder for series of unequal length."""

from typing import ClassVar, Literal

from pydantic import PositiveInt

from pipelines.config.features.base import EncoderSettings


class SeriesSettings(EncoderSettings):
    """Series of one or more numbers a step, each of its own length, as float32 of shape (channels + 1, steps): the channels from the first
    step on, then 1 for each step and 0 for the padding. A missing number is the one before it, or else the one after it. A series without
    a step, with a channel without a number, or with a number beyond 1e15 is quarantined."""

    implementation: ClassVar[str] = "pipelines.data.features.series:Series"
    kind_of_values: ClassVar[str] = "series"
    encoder: Literal["series"] = "series"
    steps: PositiveInt
    """Steps of the longest series. Longer series are cut."""
    channels: PositiveInt = 1
    """Numbers in each step. With several, a row is an array of steps, each an array of its numbers."""
    keep: Literal["first", "last"] = "last"
    """Which steps of a longer series are kept."""
