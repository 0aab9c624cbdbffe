"""Simulations as a table: a Python function makes a row of each seed, on the executors.

The rows are a pure function of the settings, the function's file and the versions of libraries, all of which name the dataset. How seeds
are dealt to tasks changes nothing, and libraries have one thread, so that neither does the number of cores.
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module, reload
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType
from threadpoolctl import threadpool_limits

from pipelines.applications.science.settings import SEED, SimulationTable
from pipelines.config.messages.words import name_list, suggestion
from pipelines.config.tasks.functions import code_digest, module_text
from pipelines.data.sources.base import RawTable, Rows, distribute, merge_batches
from pipelines.data.sources.text.parsed import parse_schema
from pipelines.data.versions.raw_inputs import SourceFile
from pipelines.errors import ConfigError, MismatchError, SourceError

_TASKS_PER_CORE = 4
"""Some seeds take longer than others."""
_loaded: dict[str, str] = {}
"""SHA-256 of each module's text when this process loaded it: workers of Spark outlive an ETL."""


class Simulation(RawTable[SimulationTable]):
    """A row for each seed: the seed, and what the function returns for it."""

    @property
    def columns(self) -> StructType:
        """Raises ConfigError if the schema is not DDL."""
        return StructType([StructField(SEED, LongType(), nullable=False), *parse_schema(self.name, self.settings.ddl)])

    def empty(self, spark: SparkSession) -> DataFrame:
        self._check_arguments()
        return spark.createDataFrame([], self.columns)

    def identity(self, spark: SparkSession) -> tuple[SourceFile, ...]:
        """The function's file, and each library with its version in the place of a checksum."""
        code = self._code()
        libraries = [SourceFile(name, 0, f"{name}=={number}") for name, number in code.libraries.items()]
        return (SourceFile(code.function, len(code.text.encode()), f"sha256:{code.digest}"), *libraries)

    def rows(self, spark: SparkSession) -> Rows:
        seeds = range(self.settings.first_seed, self.settings.first_seed + self.settings.seeds)
        tasks = min(len(seeds), _TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
        work = [seeds[len(seeds) * number // tasks : len(seeds) * (number + 1) // tasks] for number in range(tasks)]
        simulate = partial(simulate_seeds, self._code(), self.settings.parameters, to_arrow_schema(self.columns), self.settings.first_seed)
        return Rows(distribute(spark, work, simulate, self.columns))

    def _code(self) -> "SimulatorCode":
        try:
            return read_simulator(self.settings.function, self.settings.libraries)
        except SourceError as error:
            raise ConfigError(f"source.tables.{self.name}.{error}") from error

    def _check_arguments(self) -> None:
        """Raises ConfigError if the function cannot be imported, or does not take a seed and the parameters."""
        place, function = f"source.tables.{self.name}", load_simulator(self._code())
        try:
            signature = inspect.signature(function)
            signature.bind(self.settings.first_seed, **self.settings.parameters)
        except ValueError:  # a function without a signature, such as one of C
            return
        except TypeError as error:
            raise ConfigError(
                f"{place}.parameters: {self.settings.function}{signature} does not take a seed and {name_list(self.settings.parameters)}: "
                f"{error}; correct the parameters or the function"
            ) from error


@dataclass(frozen=True)
class SimulatorCode:
    """A simulator's code, by which two machines can tell whether they have the same."""

    function: str
    text: str
    """Of the function's file."""
    libraries: Mapping[str, str]
    """Versions of distributions by name."""

    @property
    def digest(self) -> str:
        return code_digest(self.text)


def read_simulator(function: str, libraries: tuple[str, ...]) -> SimulatorCode:
    """The code of `module:function` on this machine.

    Raises SourceError if the module has no file of Python, or a library is not installed."""
    module = function.partition(":")[0]
    text = module_text(module)
    if not text:
        raise SourceError(f"function: no file of Python was found for {module}; install it, or start the command in its folder")
    versions = {}
    for name in libraries:
        try:
            versions[name] = version(name)
        except PackageNotFoundError as error:
            raise SourceError(f"libraries: {name} is not installed; install it, or leave it out if the function does not use it") from error
    return SimulatorCode(function, text, versions)


def load_simulator(code: SimulatorCode) -> Callable[..., Any]:
    """The function of the present file. Raises ConfigError if it cannot be imported."""
    module, _, name = code.function.partition(":")
    try:
        stale = module in sys.modules and _loaded.get(module, code.digest) != code.digest
        loaded = reload(sys.modules[module]) if stale else import_module(module)
        _loaded[module] = code.digest
        function = getattr(loaded, name, None)
    except Exception as error:  # a user's module may raise anything
        reason = " ".join(str(error).split())
        raise ConfigError(f"function {code.function} cannot be imported: {type(error).__name__}: {reason}; mend its module") from error
    if not callable(function):
        names = [key for key, value in vars(loaded).items() if inspect.isfunction(value)]
        hint = suggestion(name, names, f"it has {name_list(names)}" if names else "define it there")
        raise ConfigError(f"function {code.function}: the module has no function {name}; {hint}")
    return function


def simulate_seeds(
    code: SimulatorCode, parameters: Mapping[str, Any], schema: pa.Schema, first_seed: int, seeds: range
) -> Iterator[pa.RecordBatch]:
    """Rows of the schema, one for each seed, in their order. Runs on an executor.

    Raises SourceError, naming the seed, if the function fails, returns other columns than those of the schema, or returns something else
    when it is called again, which is tried with `first_seed`. Raises MismatchError if this machine has other code than the driver.
    """
    present = read_simulator(code.function, tuple(code.libraries))
    if present != code:
        parts = [f"{name} {number}" for name, number in present.libraries.items() if number != code.libraries[name]] or ["another file"]
        raise MismatchError(f"an executor has {name_list(parts)} for {code.function}, unlike the driver; install the same on all machines")
    function = load_simulator(code)

    def simulate(seed: int) -> pa.RecordBatch:
        try:
            values = function(seed, **parameters)
        except Exception as error:  # a user's function may raise anything
            reason = " ".join(str(error).split())
            raise SourceError(
                f"{code.function} raised {type(error).__name__}: {reason}, for seed {seed}; correct the function, or have it return NaN, "
                "which is quarantined"
            ) from error
        return _to_batch(values, seed, schema, code.function)

    def batches() -> Iterator[pa.RecordBatch]:
        for seed in seeds:
            batch = simulate(seed)
            if seed == first_seed and simulate(seed).serialize() != batch.serialize():
                raise SourceError(
                    f"{code.function} returned other values when it was called again for seed {seed}; have it draw all that is random from "
                    "numpy.random.default_rng(seed)"
                )
            yield batch

    with threadpool_limits(1):
        yield from merge_batches(batches())


def _to_batch(values: Any, seed: int, schema: pa.Schema, function: str) -> pa.RecordBatch:
    """One row. Raises SourceError if the values are not those of the schema."""
    names = [name for name in schema.names if name != SEED]
    if not isinstance(values, Mapping) or set(values) != set(names):
        kind = f"the columns {name_list([str(name) for name in values])}" if isinstance(values, Mapping) else f"a {type(values).__name__}"
        raise SourceError(f"{function} returned {kind} for seed {seed}; return a mapping with {name_list(names)}, as the schema says")
    arrays = []
    for field in schema:
        value = seed if field.name == SEED else values[field.name]
        plain = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        if plain is None and not field.nullable:
            raise SourceError(
                f"{function} returned None as {field.name} for seed {seed}, which is NOT NULL; correct the function or the schema"
            )
        try:
            arrays.append(pa.array([plain], field.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            reason = " ".join(str(error).split())
            raise SourceError(
                f"{function} returned {field.name} for seed {seed}, which is no {field.type}: {reason}; correct the function or the schema"
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
