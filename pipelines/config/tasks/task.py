"""`task`: what the model learns."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt

from pipelines.config.effects import OnlyWith
from pipelines.config.features.base import gives_any
from pipelines.config.kinds import Kinds
from pipelines.config.tasks.base import Probability, TaskSettings

_WITH_SEQUENCE = OnlyWith("dataset.features", fits=gives_any("sequence"), remedy="encode a feature by sequence")


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


TASKS = Kinds(TaskSettings, "kind", "lockstep.tasks", "pipelines.config.tasks", example="tabular", has_default=True)
