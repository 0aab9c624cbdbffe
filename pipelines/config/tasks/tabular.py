"""Settings of the task `tabular`."""

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from pipelines.config.effects import OnlyWith, is_given
from pipelines.config.features.base import gives_any
from pipelines.config.section import Section, expand_kind
from pipelines.config.tasks.base import Probability, TaskSettings

_WITH_HIDDEN = OnlyWith(".hidden", fits=is_given, remedy="set task.hidden to widths such as [64, 32]")
_WITH_NUMBERS = OnlyWith("dataset.features", fits=gives_any("number"), remedy="encode a feature as a number, as by normal_quantile")
_PERIODIC = OnlyWith(".kind", ("periodic",))


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

    implementation: ClassVar[str] = "pipelines.tasks.tables.tabular:Tabular"
    smooths_labels: ClassVar[bool] = True
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
