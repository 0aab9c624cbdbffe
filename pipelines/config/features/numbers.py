"""Settings of the encoders for numbers."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from pipelines.config.effects import OnlyWith
from pipelines.config.features.base import EncoderSettings
from pipelines.config.section import Seed


class NumericSettings(EncoderSettings):
    impute: Literal["mean", "median", "keep", "none"] | float = "none"
    """Replacement for NULL and NaN: a statistic of the training split, or a number. With `keep` both are NaN, as trees take them. With
    `none`, such rows are quarantined."""

    @property
    def keeps_missing(self) -> bool:
        return self.impute == "keep"


class StandardizeSettings(NumericSettings):
    """(x − mean) / standard deviation, as float32."""

    implementation: ClassVar[str] = "pipelines.data.features.numbers:Standardize"
    kind_of_values: ClassVar[str] = "number"
    encoder: Literal["standardize"] = "standardize"


class MinMaxSettings(NumericSettings):
    """(x − min) / (max − min), as float32."""

    implementation: ClassVar[str] = "pipelines.data.features.numbers:MinMax"
    kind_of_values: ClassVar[str] = "number"
    encoder: Literal["minmax"] = "minmax"


class Log1pSettings(NumericSettings):
    """sign(x) · log(1 + |x|), as float32."""

    implementation: ClassVar[str] = "pipelines.data.features.numbers:Log1p"
    kind_of_values: ClassVar[str] = "number"
    encoder: Literal["log1p"] = "log1p"


class QuantileSettings(NumericSettings):
    """Number of the quantile bin of x, an int32 to embed. NULL has a bin of its own unless `impute` is set."""

    implementation: ClassVar[str] = "pipelines.data.features.numbers:Quantile"
    kind_of_values: ClassVar[str] = "category"
    encoder: Literal["quantile"] = "quantile"
    impute: Literal["mean", "median", "none"] | float = "none"
    """Replacement for NULL and NaN: a statistic of the training split, or a number. With `none`, they have a bin of their own."""
    bins: Annotated[int, Field(ge=2, le=65_536)] = 32
    """Maximum number of bins; bins with equal edges are merged."""


class NormalQuantileSettings(NumericSettings):
    """The value of the standard normal distribution at the quantile of x, as float32: the encoded column is normally distributed."""

    implementation: ClassVar[str] = "pipelines.data.features.numbers:NormalQuantile"
    kind_of_values: ClassVar[str] = "number"
    encoder: Literal["normal_quantile"] = "normal_quantile"
    quantiles: Annotated[int, Field(ge=2, le=10_000)] = 1_000
    """Number of quantiles that are stored; values between them are interpolated."""


class RobustSettings(NumericSettings):
    """z / √(1 + (z / 3)²) of z = (x − median) / interquartile range, as float32 from −3 to 3 (Holzmüller et al. 2024)."""

    implementation: ClassVar[str] = "pipelines.data.features.numbers:Robust"
    kind_of_values: ClassVar[str] = "number"
    encoder: Literal["robust"] = "robust"


class FourierSettings(NumericSettings):
    """Fourier features (Tancik et al. 2020): sine and cosine of standardised columns at random frequencies, a float32 vector.
    `impute` applies to each column separately."""

    implementation: ClassVar[str] = "pipelines.data.features.numbers:Fourier"
    kind_of_values: ClassVar[str] = "vector"
    encoder: Literal["fourier"] = "fourier"
    impute: Literal["mean", "median", "none"] | float = "none"
    """Replacement for NULL and NaN: a statistic of the training split, or a number. With `none`, such rows are quarantined."""
    column: Annotated[str, OnlyWith(".columns", ((),), remedy="put it into columns")] = ""
    """Column of the query to encode; by default, the column with the name of the feature."""
    columns: tuple[str, ...] = ()
    """Columns that are encoded together, such as longitude and latitude."""
    frequencies: PositiveInt = 16
    """Number of frequencies; the vector has twice as many entries."""
    scale: PositiveFloat = 1.0
    """Standard deviation of the frequencies, in cycles per standard deviation of the column."""
    seed: Seed = 0
    """Seed of the random frequencies."""

    def inputs(self, feature: str) -> tuple[str, ...]:
        return self.columns or super().inputs(feature)


class IdentitySettings(NumericSettings):
    """The number or array of numbers, unchanged. Floating-point numbers become float32; integers keep their type, unless `impute` is
    `keep`."""

    implementation: ClassVar[str] = "pipelines.data.features.numbers:Identity"
    kind_of_values: ClassVar[str] = "number"
    encoder: Literal["identity"] = "identity"
    shape: tuple[PositiveInt, ...] = ()
    """Shape of the arrays; every row must have this shape. Empty for a column of single numbers."""

    @property
    def implemented_by(self) -> str:
        return "pipelines.data.features.arrays:Array" if self.shape else self.implementation

    def gives(self, kind: str) -> bool:
        return kind == "number" and not self.shape
