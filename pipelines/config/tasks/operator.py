"""Settings of the task `operator`. Imports no torch."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt

from pipelines.config.tasks.base import SequenceTaskSettings


class OperatorSettings(SequenceTaskSettings):
    """A Fourier neural operator (Li et al. 2021): maps functions on a regular grid to a function on the same grid, such as an initial
    condition to the solution of a differential equation. The loss of a row is its relative error, ‖prediction − truth‖ / ‖truth‖."""

    implementation: ClassVar[str] = "pipelines.tasks.fields.operator:Operator"
    kind: Literal["operator"] = "operator"
    axes: Annotated[int, Field(ge=1, le=2)] = 1
    """Axes of the grid. A column has the shape of the grid, or one axis more, for several functions; a feature may also be a number."""
    modes: PositiveInt = 16
    """Lowest frequencies along each axis that a layer weighs: up to half of the points."""
    width: PositiveInt = 64
    """Functions between layers."""
    layers: PositiveInt = 4
    """Number of Fourier layers."""
    coordinates: bool = True
    """Whether the network sees the place of each point. Without, a shift of the features shifts the prediction: for a periodic problem that
    is the same at every place."""
