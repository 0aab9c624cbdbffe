"""Settings of the encoders for weights and for targets with rules of their own."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt, model_validator

from pipelines.config.features.base import EncoderSettings
from pipelines.config.section import Text


class WeightSettings(EncoderSettings):
    """The weight of a row in the loss, for `task.sample_weight`: a number of at least 0, divided by the mean of the training split, as
    float32. Rows with a negative number, NaN, ±∞ or NULL are quarantined."""

    implementation: ClassVar[str] = "pipelines.data.features.targets:Weight"
    kind_of_values: ClassVar[str] = "weight"
    encoder: Literal["weight"] = "weight"


class CountSettings(EncoderSettings):
    """A count: a whole number of at least 0, as float32, which holds each up to 16,777,216. Rows with another number or NULL are
    quarantined. The target of `task.loss` poisson and negative_binomial."""

    implementation: ClassVar[str] = "pipelines.data.features.targets:Count"
    kind_of_values: ClassVar[str] = "count"
    encoder: Literal["count"] = "count"


class VectorSettings(EncoderSettings):
    """Several columns of numbers side by side, each (x − mean) / standard deviation, as a float32 vector; the target of one network that
    predicts several numbers. Rows with NULL, NaN or ±∞ in one of them are quarantined."""

    implementation: ClassVar[str] = "pipelines.data.features.targets:Vector"
    kind_of_values: ClassVar[str] = "vector"
    encoder: Literal["vector"] = "vector"
    columns: Annotated[tuple[Text, ...], Field(min_length=2)]
    """Columns of the query, in the order of the vector's entries."""

    @model_validator(mode="after")
    def _columns_are_all(self) -> "VectorSettings":
        if self.column:
            raise ValueError(f"column is {self.column}, beside columns; put it into columns")
        return self

    def inputs(self, feature: str) -> tuple[str, ...]:
        return self.columns


class LabelsSettings(EncoderSettings):
    """Several labels of a row, from an array: 1 for each label that the array has and 0 for every other, as uint8. Labels of the training
    split are sorted like classes; labels that it does not have are left out. NULL is quarantined, and an empty array has no label."""

    implementation: ClassVar[str] = "pipelines.data.features.targets:Labels"
    kind_of_values: ClassVar[str] = "labels"
    encoder: Literal["labels"] = "labels"
    min_count: PositiveInt = 1
    """Labels with fewer occurrences in the training split are left out."""
