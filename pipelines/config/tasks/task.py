"""`task`: what the model learns; the settings of the tasks of the core. Imports no torch."""

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from pipelines.config.effects import OnlyWith, is_given
from pipelines.config.features.base import gives_any
from pipelines.config.kinds import Kinds
from pipelines.config.section import Section, expand_kind
from pipelines.config.tasks.base import Probability, TaskSettings
from pipelines.config.train.base import Training
from pipelines.config.tuning import Dimension

_WITH_SEQUENCE = OnlyWith("dataset.features", fits=gives_any("sequence"), remedy="encode a feature by sequence")
_WITH_HIDDEN = OnlyWith(".hidden", fits=is_given, remedy="set task.hidden to widths such as [64, 32]")
_WITH_NUMBERS = OnlyWith("dataset.features", fits=gives_any("number"), remedy="encode a feature as a number, as by normal_quantile")
_PERIODIC = OnlyWith(".kind", ("periodic",))


class TextSettings(TaskSettings):
    """A network for texts. Over a column of the encoder `sequence`, it is convolutional (Kim 2014). Over a column of the encoder `terms`,
    it is a linear model of TF-IDF: (1 + ln count) · idf, scaled to one norm. Over both, their outputs are added."""

    implementation: ClassVar[str] = "pipelines.tasks.text:Text"
    smooths_labels: ClassVar[bool] = True
    has_average: ClassVar[bool] = True
    kind: Literal["text"] = "text"
    embedding: Annotated[PositiveInt, _WITH_SEQUENCE] = 300
    """For `sequence`: width of the embedding of a word."""
    widths: Annotated[tuple[PositiveInt, ...], Field(min_length=1), _WITH_SEQUENCE] = (3, 4, 5)
    """For `sequence`: widths of the filters, in words."""
    filters: Annotated[PositiveInt, _WITH_SEQUENCE] = 100
    """For `sequence`: number of filters of each width."""
    dropout: Annotated[Probability, _WITH_SEQUENCE] = 0.5
    """For `sequence`: dropout probability between layers, in training."""


TASKS = Kinds(TaskSettings, "kind", "lockstep.tasks", "pipelines.config.tasks", example="tabular", has_default=True)


class NumberEmbedding(Section):
    """How a number enters the perceptron. The name of a kind alone is short for its defaults: `number_embedding: piecewise`."""

    kind: Annotated[Literal["none", "piecewise", "periodic"], _WITH_NUMBERS] = "none"
    """With `none` as it is. `piecewise` and `periodic` make a vector of it first, by a function that is trained for each column: piecewise
    linear between quantiles, or of sines and cosines. They are for columns about standard normal, as from `normal_quantile`."""
    width: Annotated[PositiveInt, OnlyWith(".kind", ("piecewise", "periodic"))] = 16
    """Width of the vector of a number."""
    bins: Annotated[int, Field(ge=2, le=512), OnlyWith(".kind", ("piecewise",))] = 32
    """For `piecewise`: number of pieces."""
    frequencies: Annotated[PositiveInt, _PERIODIC] = 24
    """For `periodic`: number of frequencies."""
    scale: Annotated[PositiveFloat, _PERIODIC] = 0.1
    """For `periodic`: standard deviation of the frequencies at the start, in cycles per standard deviation of the column."""


NamedNumberEmbedding = Annotated[NumberEmbedding, BeforeValidator(expand_kind)]


class TabularSettings(TaskSettings):
    """A multi-layer perceptron for tables. Columns encoded by vocabulary, hash or quantile are embedded, others are used directly. A linear
    model of TF-IDF over columns encoded by terms is added to its output (Cheng et al. 2016)."""

    implementation: ClassVar[str] = "pipelines.tasks.tabular:Tabular"
    smooths_labels: ClassVar[bool] = True
    has_average: ClassVar[bool] = True
    kind: Literal["tabular"] = "tabular"
    hidden: tuple[PositiveInt, ...] = (256, 128)
    """Widths of the hidden layers; an empty list makes a linear or logistic regression."""
    dropout: Annotated[Probability, _WITH_HIDDEN] = 0.0
    """Dropout probability between layers, in training."""
    embedding: Annotated[
        PositiveInt | None,
        OnlyWith("dataset.features", fits=gives_any("category"), remedy="encode a feature by vocabulary, hash or quantile"),
    ] = None
    """Width of each embedding of an index; by default, it grows with the fourth root of the number of values."""
    number_embedding: NamedNumberEmbedding = NumberEmbedding()
    """`none`, `piecewise` or `periodic`, or a section with its settings."""
    terms_width: Annotated[NonNegativeInt, OnlyWith("dataset.features", fits=gives_any("terms"), remedy="encode a feature by terms")] = 0
    """For `terms`: width of a vector of a text, the sum of those of its terms, which enters the perceptron beside the other columns; 0 for
    the linear model alone."""
    batch_norm: Annotated[bool, _WITH_HIDDEN] = False
    """Adds batch norm after each hidden layer."""
    members: PositiveInt = 1
    """Number of networks that share the weights of hidden layers, each with scaling vectors and a last layer of its own, as in TabM
    (Gorishniy et al. 2024), which has 32. The loss is the mean of theirs, and the prediction their average."""

    @model_validator(mode="after")
    def _members_have_no_batch_norm(self) -> "TabularSettings":
        if self.members > 1 and self.batch_norm:
            raise ValueError(
                f"members is {self.members}, but batch_norm is true, which is for one network; set members to 1, or batch_norm to false"
            )
        return self

    def search_space(self, train: Training) -> dict[str, Dimension]:
        """As of every network, and its layers: half and twice as wide, one more and one fewer."""
        space = super().search_space(train)
        if self.hidden:
            half, twice = tuple(max(1, width // 2) for width in self.hidden), tuple(width * 2 for width in self.hidden)
            choices = dict.fromkeys([self.hidden, half, twice, (*self.hidden, self.hidden[-1]), self.hidden[:-1] or self.hidden])
            space["task.hidden"] = Dimension(choice=tuple(list(widths) for widths in choices))
        return space


class VisionSettings(TaskSettings):
    """A convolutional network for one column of images."""

    implementation: ClassVar[str] = "pipelines.tasks.vision:Vision"
    smooths_labels: ClassVar[bool] = True
    has_average: ClassVar[bool] = True
    kind: Literal["vision"] = "vision"
    network: Literal["small", "fedavg", "resnet20", "resnet18", "resnet50"] = "small"
    """`small` has two 3x3 convolutions of 32 and 64 channels, and 128 hidden units; `fedavg` two of 5x5, and 512 hidden units, as in
    McMahan et al. 2017; the others are ResNets (He et al. 2016), of which `resnet20` is the small one for pictures of 32x32."""
    dropout: Probability = 0.0
    """Dropout probability between layers, in training."""
    shift_pixels: NonNegativeInt = 0
    """Augmentation in training: maximum number of pixels by which a picture is shifted along each axis; 0, which is black, comes in."""
    flips: Annotated[tuple[Annotated[int, Field(ge=0, le=1)], ...], AfterValidator(lambda axes: tuple(sorted(axes)))] = ()
    """Augmentation in training: axes along which half of the pictures are mirrored; 0 is upside down, 1 left for right."""
    masked_pixels: NonNegativeInt = 0
    """Augmentation in training: side of a square, at a random place, that is replaced by the mean colour of the picture."""
    mixup: Annotated[float, Field(ge=0.01, le=10)] | None = None
    """Augmentation in training: each picture is blended with another one, and their labels are mixed alike. Its share is drawn from the
    distribution Beta(mixup, mixup), with a number such as 0.2. By default, pictures are not blended."""

    @property
    def pairs_rows(self) -> bool:
        return self.mixup is not None

    @model_validator(mode="after")
    def _flips_name_each_axis_once(self) -> "VisionSettings":
        if len(set(self.flips)) < len(self.flips):
            raise ValueError(f"flips is {list(self.flips)}; name each axis once")
        return self
