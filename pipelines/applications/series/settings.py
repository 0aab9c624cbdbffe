"""Settings of series of unequal length: the encoder, and the task."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt

from pipelines.config.effects import OnlyWith
from pipelines.config.features.base import EncoderSettings
from pipelines.config.tasks.base import Probability, TaskSettings


class SeriesSettings(EncoderSettings):
    """Series of one or more numbers a step, each of its own length, as float32 of shape (channels + 1, steps): the channels from the first
    step on, then 1 for each step and 0 for the padding. A missing number is the one before it, or else the one after it. A series without
    a step, with a channel without a number, or with a number beyond 1e15 is quarantined."""

    implementation: ClassVar[str] = "pipelines.applications.series.encoders:Series"
    kind_of_values: ClassVar[str] = "series"
    encoder: Literal["series"] = "series"
    steps: PositiveInt
    """Steps of the longest series. Longer series are cut."""
    channels: PositiveInt = 1
    """Numbers in each step. With several, a row is an array of steps, each an array of its numbers."""
    keep: Literal["first", "last"] = "last"
    """Which steps of a longer series are kept."""


class SeriesTaskSettings(TaskSettings):
    """A network for one column of series (encoder `series`), each of its own length. It sees a series scaled to mean 0 and deviation 1, and
    beside it mean, deviation, lowest and highest value and length."""

    implementation: ClassVar[str] = "pipelines.applications.series.task:SeriesTask"
    smooths_labels: ClassVar[bool] = True
    has_average: ClassVar[bool] = True
    kind: Literal["series"] = "series"
    network: Literal["rocket", "convolution"] = "rocket"
    """`rocket` has random kernels, and trains one linear layer on how often and how much they respond (Dempster et al. 2020);
    `convolution` is a small convolutional network (Wang et al. 2017)."""
    filters: Annotated[tuple[PositiveInt, ...], Field(min_length=1), OnlyWith(".network", ("convolution",))] = (64, 128, 64)
    """For `convolution`: number of filters of each layer."""
    kernels: Annotated[PositiveInt, OnlyWith(".network", ("rocket",))] = 2_000
    """For `rocket`: number of random kernels."""
    dropout: Probability = 0.0
    """Dropout probability before the last layer, in training."""
