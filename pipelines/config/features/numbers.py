"""Settings of the encoders of numbers."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from pipelines.config.features.base import EncoderSettings
from pipelines.config.section import Seed


class Numeric(EncoderSettings):
    impute: Literal["mean", "median", "none"] | float = "none"
    """What takes the place of NULL and NaN: a statistic of the training split, or a number. `none` quarantines."""


class Standardize(Numeric):
    """(x − mean) / standard deviation, float32."""

    implementation: ClassVar[str] = "pipelines.features.numbers:Standardize"
    encoder: Literal["standardize"] = "standardize"


class MinMax(Numeric):
    """(x − min) / (max − min), float32."""

    implementation: ClassVar[str] = "pipelines.features.numbers:MinMax"
    encoder: Literal["minmax"] = "minmax"


class Log1p(Numeric):
    """sign(x) · log(1 + |x|), float32."""

    implementation: ClassVar[str] = "pipelines.features.numbers:Log1p"
    encoder: Literal["log1p"] = "log1p"


class Quantile(Numeric):
    """The number of the quantile bin x falls in, an int32 to embed. NULL has a bin of its own unless imputed."""

    implementation: ClassVar[str] = "pipelines.features.quantiles:Quantile"
    encoder: Literal["quantile"] = "quantile"
    bins: Annotated[int, Field(ge=2, le=65_536)] = 32
    """At most so many; equal edges make one."""


class NormalQuantile(Numeric):
    """The normal deviate at x's quantile, float32: any distribution becomes a bell."""

    implementation: ClassVar[str] = "pipelines.features.quantiles:NormalQuantile"
    encoder: Literal["normal_quantile"] = "normal_quantile"
    quantiles: Annotated[int, Field(ge=2, le=10_000)] = 1_000
    """Points of the distribution kept; between them x is interpolated."""


class Fourier(Numeric):
    """sin and cos of standardised columns at random frequencies (Tancik et al. 2020), float32 vector. `impute` is for
    each column by itself."""

    implementation: ClassVar[str] = "pipelines.features.fourier:Fourier"
    encoder: Literal["fourier"] = "fourier"
    columns: tuple[str, ...] = ()
    """Columns encoded together, such as longitude and latitude."""
    frequencies: PositiveInt = 16
    """The vector has twice as many entries."""
    scale: PositiveFloat = 1.0
    """Standard deviation of the frequencies, in cycles per standard deviation of the column."""
    seed: Seed = 0
    """Of the frequencies."""

    def inputs(self, feature: str) -> tuple[str, ...]:
        return self.columns or super().inputs(feature)


class Identity(Numeric):
    """The number or array of numbers as it is. Floats become float32, whole numbers keep their type."""

    implementation: ClassVar[str] = "pipelines.features.numbers:Identity"
    encoder: Literal["identity"] = "identity"
    shape: tuple[PositiveInt, ...] = ()
    """Of an array column; every row must have it."""

    @property
    def implemented_by(self) -> str:
        return "pipelines.features.arrays:Array" if self.shape else self.implementation
