"""Settings of the task `forecasting`. Imports no torch."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt, model_validator

from pipelines.config.effects import OnlyWith
from pipelines.config.tasks.base import Probability, SequenceTaskSettings, check_heads

_OF_TRANSFORMER = OnlyWith(".network", ("transformer",))
TRANSFORMER_SETTINGS = ("patch", "layers", "heads", "width", "dropout")
"""Those that only the network `transformer` has."""


class ForecastingSettings(SequenceTaskSettings):
    """Forecasts several series from their history, each by itself and all by the same weights: linear layers (Zeng et al. 2023), or a
    transformer (Nie et al. 2023). What other features of the row shift, for each step and series, is added."""

    implementation: ClassVar[str] = "pipelines.applications.forecasting.task:Forecasting"
    kind: Literal["forecasting"] = "forecasting"
    loss: Literal["auto", "quantiles"] = "auto"  # type: ignore[assignment]  # unlike other tasks of sequences, it has two
    """`auto` is the squared error of one forecast; `quantiles` forecasts each of `quantiles`, with the pinball loss."""
    network: Literal["dlinear", "linear", "transformer"] = "dlinear"
    """`linear` is one linear layer from the history to the forecast. `dlinear` splits the history into trend and remainder, with a layer
    for each. `transformer` lets patches of the history attend to each other."""
    normalize: Literal["none", "last", "deviation"] = "none"
    """What a history loses before the network, and its forecast gets back: with `last` its last value, as in NLinear, and with `deviation`
    its mean and standard deviation, as in RevIN (Kim et al. 2022)."""
    kernel: Annotated[PositiveInt, OnlyWith(".network", ("dlinear",))] = 25
    """Of `dlinear`: window of the moving average that is the trend, in time steps; an odd number."""
    patch: Annotated[PositiveInt, Field(ge=2), _OF_TRANSFORMER] = 16
    """Of `transformer`: time steps of a patch; each overlaps the next by half."""
    layers: Annotated[PositiveInt, _OF_TRANSFORMER] = 3
    """Of `transformer`: number of blocks."""
    heads: Annotated[PositiveInt, _OF_TRANSFORMER] = 4
    """Of `transformer`: attention heads of each block."""
    width: Annotated[PositiveInt, _OF_TRANSFORMER] = 32
    """Of `transformer`: width of a patch's vector, a multiple of `heads`."""
    dropout: Annotated[Probability, _OF_TRANSFORMER] = 0.2
    """Of `transformer`: dropout probability between layers, in training."""

    @model_validator(mode="after")
    def _settings_suit_the_networks(self) -> "ForecastingSettings":
        check_heads(self.width, self.heads)
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel is {self.kernel}; a centred moving average needs an odd number of steps, such as {self.kernel + 1}")
        return self

    @property
    def excluded_from_identity(self) -> set[str]:
        unused = set() if self.network == "transformer" else set(TRANSFORMER_SETTINGS)
        return super().excluded_from_identity | unused
