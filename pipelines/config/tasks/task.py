"""`task`: what the model learns."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from pipelines.config.effects import OnlyWith
from pipelines.config.features.base import gives_any
from pipelines.config.kinds import Kinds
from pipelines.config.tasks.base import Probability, SequenceTaskSettings, TaskSettings, check_heads

_WITH_SEQUENCE = OnlyWith("dataset.features", fits=gives_any("sequence"), remedy="encode a feature by sequence")
_FACTORS = OnlyWith(".network", ("factors",))


class TextSettings(TaskSettings):
    """A network for texts. Over a column of the encoder `sequence`, it is convolutional (Kim 2014). Over a column of the encoder `terms`,
    it is a linear model of TF-IDF: (1 + ln count) · idf, scaled to one norm. Over both, their outputs are added."""

    implementation: ClassVar[str] = "pipelines.tasks.sequences.text:Text"
    smooths_labels: ClassVar[bool] = True
    kind: Literal["text"] = "text"
    embedding: Annotated[PositiveInt, _WITH_SEQUENCE] = 300
    """For `sequence`: width of the embedding of a word."""
    widths: Annotated[tuple[PositiveInt, ...], Field(min_length=1), _WITH_SEQUENCE] = (3, 4, 5)
    """For `sequence`: widths of the filters, in words."""
    filters: Annotated[PositiveInt, _WITH_SEQUENCE] = 100
    """For `sequence`: number of filters of each width."""
    dropout: Annotated[Probability, _WITH_SEQUENCE] = 0.5
    """For `sequence`: dropout probability between layers, in training."""


class SpeechSettings(TaskSettings):
    """A convolutional network for one column of spectrograms."""

    implementation: ClassVar[str] = "pipelines.tasks.series.speech:Speech"
    smooths_labels: ClassVar[bool] = True
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


class SeriesTaskSettings(TaskSettings):
    """A network for one column of series (encoder `series`), each of its own length. It sees a series scaled to mean 0 and deviation 1, and
    beside it mean, deviation, lowest and highest value and length."""

    implementation: ClassVar[str] = "pipelines.tasks.series.series:SeriesTask"
    smooths_labels: ClassVar[bool] = True
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


class RecommendationSettings(TaskSettings):
    """Predicts how a user rates an item, from features of both."""

    implementation: ClassVar[str] = "pipelines.tasks.tables.recommendation:Recommendation"
    smooths_labels: ClassVar[bool] = True
    kind: Literal["recommendation"] = "recommendation"
    network: Literal["factors", "dlrm"] = "factors"
    """`factors` is matrix factorization: biases, and the product of the vectors of user and item. `dlrm` computes the products of all
    pairs of features, followed by a perceptron."""
    user: Annotated[tuple[str, ...], _FACTORS] = ()
    """For `factors`: features whose vectors are summed to the vector of the user."""
    item: Annotated[tuple[str, ...], _FACTORS] = ()
    """For `factors`: features whose vectors are summed to the vector of the item."""
    width: PositiveInt = 32
    """Width of each vector."""
    hidden: Annotated[tuple[PositiveInt, ...], OnlyWith(".network", ("dlrm",))] = (64, 32)
    """For `dlrm`: widths of the hidden layers."""
    dropout: Probability = 0.0
    """Dropout probability between layers, in training."""


class NextItemSettings(SequenceTaskSettings):
    """Predicts the next item of a sequence by causal self-attention over the previous items (SASRec)."""

    implementation: ClassVar[str] = "pipelines.tasks.sequences.next_item:NextItem"
    kind: Literal["next_item"] = "next_item"
    width: PositiveInt = 50
    """Width of the vector of an item and of every layer."""
    blocks: PositiveInt = 2
    """Number of transformer blocks, each with self-attention and a perceptron."""
    heads: PositiveInt = 1
    """Attention heads in each block; they must divide `width`."""
    dropout: Probability = 0.5
    """Dropout probability between layers, in training."""
    negatives: PositiveInt = 256
    """Number of negative samples in the loss: items drawn for each row and epoch."""
    evaluation_negatives: PositiveInt = 100
    """Number of negative samples in evaluation: items outside the history of a row, drawn once, among which the right one is ranked."""

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> "NextItemSettings":
        check_heads(self.width, self.heads)
        return self


TASKS = Kinds(TaskSettings, "kind", "lockstep.tasks", "pipelines.config.tasks", example="tabular", has_default=True)
