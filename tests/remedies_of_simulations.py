"""Remedies of errors about simulated tables and operators: what raises each, and what it offers instead."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pyarrow as pa
import torch
from remedy_cases import Do
from tables import raw_table

from pipelines.applications.science.settings import OperatorSettings, SimulationTable
from pipelines.applications.science.simulation import Simulation, SimulatorCode, read_simulator, simulate_seeds
from pipelines.applications.science.task import Operator
from pipelines.data.versions.schema import TensorColumn
from pipelines.tasks.data import Data

MODULE = "simulator_of_remedies"
SOUND = "def simulate(seed, points=2):\n    return {'x': [float(seed)] * points}\n"
SCHEMA = pa.schema([("seed", pa.int64()), pa.field("x", pa.list_(pa.float64()), nullable=False)])


def act_with_module(folder: Path, text: str, act: Callable[[], Any]) -> None:
    """Act while Python finds a module with this text."""
    (folder / f"{MODULE}.py").write_text(text)
    try:
        with mock.patch.object(sys, "path", [str(folder), *sys.path]):
            act()
    finally:
        sys.modules.pop(MODULE, None)
        sys.path_importer_cache.pop(str(folder), None)


def simulate(text: str = SOUND, code: SimulatorCode | None = None) -> Do:
    """Simulate three rows by a module with this text."""

    def act() -> None:
        list(simulate_seeds(code or read_simulator(f"{MODULE}:simulate", ("numpy",)), {}, SCHEMA, 0, range(3)))

    return lambda folder: act_with_module(folder, text, act)


def analyse(text: str = SOUND, **settings: Any) -> Do:
    """Check the settings of a table with this module before any row is made."""
    values = {"format": "simulation", "function": f"{MODULE}:simulate", "schema": "x array<double>", "seeds": 3, **settings}
    return lambda folder: act_with_module(folder, text, lambda: cast(Simulation, raw_table(values))._check_arguments())


def table(**settings: Any) -> Do:
    return lambda folder: SimulationTable.model_validate({"function": "a:b", "schema": "x double", "seeds": 1, **settings})


def column(name: str, *shape: int, role: Any = "feature") -> TensorColumn:
    return TensorColumn(name=name, dtype="float32", shape=shape, role=role)


def operator(*shapes: tuple[int, ...], **settings: Any) -> Do:
    columns = (column("initial", *shapes[0]), column("final", *shapes[1], role="target"))
    return lambda folder: Operator(OperatorSettings.model_validate({"modes": 4, **settings}), Data(columns))


def judge(final: list[float]) -> Do:
    learned = Operator(OperatorSettings(modes=1), Data((column("initial", 2), column("final", 2, role="target"))))
    rows = {"initial": torch.ones(1, 2), "final": torch.tensor([final])}
    return lambda folder: learned.update(learned.metrics(), rows["final"], rows)


FAILS = "def simulate(seed):\n    if seed == 2:\n        raise ValueError('diverged')\n    return {'x': [0.0]}\n"
CASES: dict[str, tuple[Do, tuple[Do, ...]]] = {
    "the table has the column {} already; leave it out": (table(schema="seed int, x double"), (table(),)),
    "no file of Python was found for": (analyse(function="nowhere_at_all:simulate"), (analyse(),)),
    "is not installed; install it, or leave it out if the function": (analyse(libraries=["no-such-one"]), (analyse(libraries=["numpy"]),)),
    "cannot be imported: {}: {}; mend its module": (analyse("import no_such_module\n" + SOUND), (analyse(),)),
    "does not take a seed and {}: {}; correct the parameters": (
        analyse(parameters={"size": 3}),
        (analyse(parameters={"points": 3}), analyse(SOUND.replace("points=2", "size=2, points=2"), parameters={"size": 3})),
    ),
    "unlike the driver; install the same on all machines": (simulate(code=SimulatorCode(f"{MODULE}:simulate", "", {})), (simulate(),)),
    "or have it return NaN, which is quarantined": (
        simulate(FAILS),
        (simulate(), simulate(FAILS.replace("raise ValueError('diverged')", "return {'x': [float('nan')]}"))),
    ),
    "which is no {}: {}; correct the function or the schema": (simulate(SOUND.replace("float(seed)", "'far'")), (simulate(),)),
    "which is NOT NULL; correct the function or the schema": (simulate(SOUND.replace("[float(seed)] * points", "None")), (simulate(),)),
    "points along an axis; set it to": (operator((16,), (16,), modes=9), (operator((16,), (16,), modes=8),)),
    "give features and target one shape, or set task.axes": (
        operator((8, 10), (8, 10, 2)),
        (operator((8, 10), (8, 10)), operator((8, 10), (8, 10, 2), axes=2)),
    ),
    "so it has no relative error; leave such rows out": (judge([0.0, 0.0]), (judge([0.0, 1.0]),)),
}
