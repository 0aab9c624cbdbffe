"""Settings for simulations and operators: the format, and the task."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt, field_validator

from pipelines.config.plugins import is_class_path
from pipelines.config.section import Text
from pipelines.config.source.table_settings import TableSettings, Value, check_ddl, ddl_names
from pipelines.config.tasks.base import SequenceTaskSettings

SEED = "seed"
"""The column with the seed of a row."""


class SimulationTable(TableSettings):
    """A raw table that a Python function simulates on the executors, a row for each seed."""

    implementation: ClassVar[str] = "pipelines.applications.science.simulation:Simulation"
    format: Literal["simulation"] = "simulation"
    function: Text
    """`module:function`. It takes a seed, a whole number, and `parameters`, and returns a mapping with a value for each column: a number, a
    text, or a NumPy array or list. The same seed must always give the same values. The SHA-256 of the module's file names the dataset."""
    ddl: Annotated[str, Field(min_length=1)] = Field(alias="schema")
    """Columns that the function returns, as Spark DDL: `initial array<double>, final array<double>`. The table also has `seed`, a
    bigint."""
    seeds: Annotated[PositiveInt, Field(le=10**12)]
    """Number of rows: seeds count from `first_seed`."""
    first_seed: Annotated[int, Field(ge=0, le=2**62)] = 0
    """The first seed."""
    parameters: dict[str, Value | tuple[Value, ...]] = {}
    """Further arguments of the function, by name."""
    libraries: tuple[Text, ...] = ("numpy",)
    """Installed distributions whose versions name the dataset too, because another version may round otherwise: those that the function
    uses, such as scipy or a package of your own."""

    @field_validator("function")
    @classmethod
    def _names_a_function(cls, function: str) -> str:
        if not is_class_path(function):
            raise ValueError("must be module:function, such as burgers:simulate")
        return function

    @field_validator("ddl")
    @classmethod
    def _columns_have_types(cls, ddl: str) -> str:
        if SEED in map(str.lower, ddl_names(check_ddl(ddl))):
            raise ValueError(f"the table has the column {SEED} already; leave it out")
        return ddl


class OperatorSettings(SequenceTaskSettings):
    """A Fourier neural operator (Li et al. 2021): maps functions on a regular grid to a function on the same grid, such as an initial
    condition to the solution of a differential equation. The loss of a row is its relative error, ‖prediction − truth‖ / ‖truth‖."""

    implementation: ClassVar[str] = "pipelines.applications.science.task:Operator"
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
