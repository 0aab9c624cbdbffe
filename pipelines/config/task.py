"""`task`: what is learned. Built-in kinds by name, others by import path."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from pipelines.config.plugins import own_settings
from pipelines.config.section import Section

Probability = Annotated[float, Field(ge=0, lt=1)]


class TaskSettings(Section):
    """Base of every task's settings. A task of your own derives from it, in a module that imports no torch."""

    implementation: ClassVar[str]
    """`module:Class` of the `pipelines.tasks.base.Task` that these settings configure; imported by the workers only."""
    kind: str
    """One of the built-in kinds, such as `tabular`, or `module:Class` of your own settings."""
    class_weights: Literal["none", "balanced"] | tuple[NonNegativeFloat, ...] = "none"
    """For a class target: `balanced` weighs a class by the inverse of its share in the training split."""


class Tabular(TaskSettings):
    """A multi-layer perceptron; vocabulary, hash and quantile columns are embedded, the others taken as they are."""

    implementation: ClassVar[str] = "pipelines.tasks.tabular:Tabular"
    kind: Literal["tabular"] = "tabular"
    hidden: tuple[PositiveInt, ...] = (256, 128)
    """Widths of the hidden layers; none at all is linear or logistic regression."""
    dropout: Probability = 0.0
    """Probability that a value between two layers is zeroed, in training."""
    embedding: PositiveInt | None = None
    """Width of every embedding; by default it grows with the fourth root of the number of values."""
    batch_norm: bool = False
    """After every hidden layer."""


class Vision(TaskSettings):
    """A convolutional network over one image column."""

    implementation: ClassVar[str] = "pipelines.tasks.vision:Vision"
    kind: Literal["vision"] = "vision"
    network: Literal["small", "resnet18", "resnet50"] = "small"
    """`small`: two 3x3 convolutions of 32 and 64 channels, 128 hidden units."""
    dropout: Probability = 0.0
    """Probability that a value between two layers is zeroed, in training."""


class Language(TaskSettings):
    """A GPT over one packed column: each token from those before it in its window."""

    implementation: ClassVar[str] = "pipelines.tasks.language:Language"
    kind: Literal["language"] = "language"
    class_weights: Literal["none"] = "none"
    """None: there are no classes of a target to weigh."""
    layers: PositiveInt = 4
    """Blocks of self-attention and perceptron."""
    heads: PositiveInt = 4
    """Of the self-attention in a block."""
    width: PositiveInt = 128
    """Of the residual stream; each head has an even share of it."""
    dropout: Probability = 0.0
    """Probability that a value between two layers is zeroed, in training."""
    sample_tokens: NonNegativeInt = 200
    """Length of the text that the model writes after every epoch, a file of the MLflow run; 0 for none."""
    temperature: PositiveFloat = 0.8
    """Of that text: below 1 it is more probable and less varied."""

    @model_validator(mode="after")
    def _heads_are_of_even_width(self) -> "Language":
        if self.width % (2 * self.heads):
            near = max(self.width // (2 * self.heads), 1) * 2 * self.heads
            raise ValueError(f"width is {self.width}, which {self.heads} heads do not share in even numbers; take {near}")
        return self


class Forecasting(TaskSettings):
    """DLinear (Zeng et al. 2023): trend and rest of a series' history, each through a linear layer of its own."""

    implementation: ClassVar[str] = "pipelines.tasks.forecasting:Forecasting"
    kind: Literal["forecasting"] = "forecasting"
    class_weights: Literal["none"] = "none"
    """None: there are no classes of a target to weigh."""
    kernel: PositiveInt = 25
    """Steps of the moving average that is the trend; an odd number."""

    @model_validator(mode="after")
    def _the_average_has_a_middle(self) -> "Forecasting":
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel is {self.kernel}; an average around a step takes an odd number of them, such as {self.kernel + 1}")
        return self


class Text(TaskSettings):
    """A convolutional network over the words of one column, as the encoder `sequence` cuts them: runs of letters, digits and
    `_` with the apostrophe in front, and every other character but blanks by itself."""

    implementation: ClassVar[str] = "pipelines.tasks.text:Text"
    kind: Literal["text"] = "text"
    embedding: PositiveInt = 300
    """Width of a word's vector."""
    widths: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (3, 4, 5)
    """Words that a filter sees at once."""
    filters: PositiveInt = 100
    """Of each width."""
    dropout: Probability = 0.5
    """Probability that a value between two layers is zeroed, in training."""


class Speech(TaskSettings):
    """A convolutional network over one spectrogram column."""

    implementation: ClassVar[str] = "pipelines.tasks.speech:Speech"
    kind: Literal["speech"] = "speech"
    filters: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (32, 64, 128)
    """Of each convolution."""
    dropout: Probability = 0.0
    """Probability that a value between two layers is zeroed, in training."""
    shift_frames: NonNegativeInt = 0
    """In training a recording is moved by up to so many frames, forwards or back."""
    masked_frames: NonNegativeInt = 0
    """In training up to so many frames in a row are hidden."""
    masked_mels: NonNegativeInt = 0
    """In training up to so many neighbouring bands are hidden."""


class Recommendation(TaskSettings):
    """How much a user likes an item, from the features of both."""

    implementation: ClassVar[str] = "pipelines.tasks.recommendation:Recommendation"
    kind: Literal["recommendation"] = "recommendation"
    network: Literal["factors", "dlrm"] = "factors"
    """`factors`: biases, and the product of a user's vector and an item's; `dlrm`: products of all pairs, and a perceptron."""
    user: tuple[str, ...] = ()
    """Of `factors`: the features whose vectors add up to the user's."""
    item: tuple[str, ...] = ()
    """Of `factors`: those of the item."""
    width: PositiveInt = 32
    """Of every vector."""
    hidden: tuple[PositiveInt, ...] = (64, 32)
    """Of `dlrm`: widths of the hidden layers."""
    dropout: Probability = 0.0
    """Probability that a value between two layers is zeroed, in training."""


class NextItem(TaskSettings):
    """What follows in a sequence, by causal self-attention over what came before."""

    implementation: ClassVar[str] = "pipelines.tasks.next_item:NextItem"
    kind: Literal["next_item"] = "next_item"
    class_weights: Literal["none"] = "none"
    """None: there are no classes of a target to weigh."""
    width: PositiveInt = 50
    """Of an item's vector and of every layer."""
    blocks: PositiveInt = 2
    """Of self-attention and perceptron."""
    heads: PositiveInt = 1
    """Of the self-attention in a block."""
    dropout: Probability = 0.5
    """Probability that a value between two layers is zeroed, in training."""
    negatives: PositiveInt = 256
    """Items drawn anew for each row and epoch, among which the right one is to be found."""
    evaluation_negatives: PositiveInt = 100
    """Items that are not in the row's history, among which the right one is ranked; drawn once."""

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> "NextItem":
        if self.width % self.heads:
            near = max(self.width // self.heads, 1) * self.heads
            raise ValueError(f"width is {self.width}, which {self.heads} heads do not divide; take {near}")
        return self


KINDS: dict[str, type[TaskSettings]] = {
    "tabular": Tabular,
    "vision": Vision,
    "text": Text,
    "speech": Speech,
    "recommendation": Recommendation,
    "next_item": NextItem,
    "language": Language,
    "forecasting": Forecasting,
}


def settings_class(kind: str) -> type[TaskSettings]:
    """The settings class that `kind` names.

    Raises ValueError if no built-in kind has that name and it is not the import path of a TaskSettings class.
    """
    return KINDS[kind] if kind in KINDS else own_settings(kind, TaskSettings, "kind", KINDS)
