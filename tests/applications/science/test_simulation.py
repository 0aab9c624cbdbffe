"""Tables that a function simulates, without Spark: what a row is, what names the dataset, and what a faulty function is told."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from tables import raw_table

from pipelines.applications.science.simulation import Simulation, SimulatorCode, read_simulator, simulate_seeds
from pipelines.config.load import parse
from pipelines.errors import ConfigError, MismatchError, SourceError

MODULE = "my_simulator"
SCHEMA = pa.schema(
    [("seed", pa.int64()), ("field", pa.list_(pa.float64())), pa.field("energy", pa.float64(), nullable=False), ("name", pa.string())]
)
SOUND = """
import numpy as np

def simulate(seed, points=4, factor=1.0):
    field = factor * np.random.default_rng(seed).standard_normal(points)
    return {"field": field, "energy": field @ field, "name": f"row {seed}"}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    write(tmp_path, SOUND)
    yield tmp_path
    sys.modules.pop(MODULE, None)


def write(folder: Path, text: str) -> None:
    (folder / f"{MODULE}.py").write_text(text)


def table(**settings: Any) -> Simulation:
    values = {"format": "simulation", "function": f"{MODULE}:simulate", "schema": "field array<double>", "seeds": 3, **settings}
    return cast(Simulation, raw_table(values))


def code(**libraries: str) -> SimulatorCode:
    return read_simulator(f"{MODULE}:simulate", tuple(libraries) or ("numpy",))


def rows(seeds: range = range(3), first: int = 0, schema: pa.Schema = SCHEMA, **parameters: Any) -> list[dict[str, Any]]:
    batches = simulate_seeds(code(), parameters, schema, first, seeds)
    return pa.Table.from_batches(list(batches), schema).to_pylist()


def test_a_row_is_the_seed_and_what_the_function_returns() -> None:
    first, second, third = rows(points=2)
    assert [row["seed"] for row in (first, second, third)] == [0, 1, 2]
    assert first["name"] == "row 0" and len(first["field"]) == 2 and first["energy"] == pytest.approx(sum(x * x for x in first["field"]))
    assert first["field"] != second["field"]


def test_seeds_dealt_in_another_way_have_the_same_bits() -> None:
    in_order = rows(range(10, 20), 10)
    parts = [*rows(range(16, 20), 10), *rows(range(10, 16), 10)]
    assert sorted(parts, key=lambda row: row["seed"]) == in_order


def test_nested_arrays_and_integers_take_the_types_of_the_schema(folder: Path) -> None:
    write(folder, "import numpy as np\ndef simulate(seed):\n    return {'plane': np.ones((2, 3), 'f4'), 'count': np.int32(7)}\n")
    schema = pa.schema({"seed": pa.int64(), "plane": pa.list_(pa.list_(pa.float64())), "count": pa.float64()})
    assert rows(range(1), schema=schema) == [{"seed": 0, "plane": [[1.0] * 3] * 2, "count": 7.0}]


def test_code_and_versions_of_libraries_name_the_dataset(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def checksums(**settings: Any) -> list[str]:
        files = table(**settings).identity(cast(Any, None))
        return list(table(**settings).identity_lines(files, ()))

    before = checksums()
    assert checksums() == before and len(before) == 2 and any(line.startswith("numpy==") for line in before)
    assert len(checksums(libraries=["numpy", "scipy"])) == 3
    write(folder, SOUND + "# another line\n")
    assert checksums() != before
    write(folder, SOUND)
    monkeypatch.setattr("pipelines.applications.science.simulation.version", lambda name: "9.9")
    assert checksums() != before


def test_a_worker_that_outlives_an_etl_runs_the_present_file(folder: Path) -> None:
    (before,) = rows(range(1))
    write(folder, SOUND.replace("factor *", "2 * factor *"))
    (after,) = rows(range(1))
    assert after["field"] == [2 * value for value in before["field"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "def simulate(seed):\n    return {'field': [0.0] * (1 // (seed - 2)), 'energy': 0.0, 'name': ''}\n",
            "raised ZeroDivisionError: .*, for seed 2; correct the function, or have it return NaN, which is quarantined",
        ),
        (
            "def simulate(seed):\n    return {'field': [0.0], 'other': 1}\n",
            "returned the columns field, other for seed 0; return a mapping with field, energy, name, as the schema says",
        ),
        ("def simulate(seed):\n    return [0.0]\n", "returned a list for seed 0; return a mapping with field, energy, name"),
        (
            "def simulate(seed):\n    return {'field': 'far', 'energy': 0.0, 'name': ''}\n",
            "returned field for seed 0, which is no list<.*>: .*; correct the function or the schema",
        ),
        (
            "def simulate(seed):\n    return {'field': [0.0], 'energy': None, 'name': ''}\n",
            "returned None as energy for seed 0, which is NOT NULL; correct the function or the schema",
        ),
        (
            "import random\ndef simulate(seed):\n    return {'field': [random.random()], 'energy': 0.0, 'name': ''}\n",
            r"returned other values when it was called again for seed 0; have it draw all that is random from numpy.random",
        ),
    ],
    ids=["raises", "other columns", "no mapping", "another type", "nothing", "not a function of the seed"],
)
def test_a_faulty_function_is_one_line_with_the_seed(folder: Path, text: str, message: str) -> None:
    write(folder, text)
    with pytest.raises(SourceError, match=message):
        rows()
    write(folder, SOUND)
    assert len(rows()) == 3


def test_a_machine_with_other_code_is_named(folder: Path) -> None:
    driver = code()
    for other, message in (
        (
            SimulatorCode(driver.function, driver.text, {"numpy": "1.0"}),
            "an executor has numpy .* for my_simulator:simulate, unlike the driver",
        ),
        (SimulatorCode(driver.function, "", driver.libraries), "an executor has another file for my_simulator:simulate"),
    ):
        with pytest.raises(MismatchError, match=message):
            list(simulate_seeds(other, {}, SCHEMA, 0, range(1)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"function": "nowhere:simulate"},
            "t.function: no file of Python was found for nowhere; install it, or start the command",
        ),
        ({"function": f"{MODULE}:simulat"}, "the module has no function simulat; did you mean simulate?"),
        ({"libraries": ["no-such-package"]}, "source.tables.t.libraries: no-such-package is not installed; install it, or leave it out"),
        ({"parameters": {"size": 3}}, r"source.tables.t.parameters: my_simulator:simulate\(.*\) does not take a seed and size: .*'size'"),
    ],
)
def test_settings_that_do_not_fit_the_function_are_refused_before_a_row_is_made(settings: dict[str, Any], message: str) -> None:
    faulty = table(**settings)
    with pytest.raises(ConfigError, match=message):
        faulty._check_arguments()
    table()._check_arguments()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"function": "simulate"}, ".function: must be module:function, such as burgers:simulate"),
        ({"schema": "field arry<double>"}, r".schema: field: no type arry \(did you mean array\?\)"),
        ({"schema": "Seed int"}, ".schema: the table has the column seed already; leave it out"),
        ({"seeds": 0}, ".seeds: must be greater than 0"),
        ({"path": "a.csv"}, ".path: no such setting"),
        ({"format": "simulatoin"}, ".format: no format 'simulatoin'; did you mean simulation?"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], message: str) -> None:
    simulated = {"format": "simulation", "function": f"{MODULE}:simulate", "schema": "field array<double>", "seeds": 3, **settings}
    values: dict[str, Any] = {
        "name": "toy", "source": {"tables": {"rows": simulated}}, "task": {"kind": "tabular"},
        "dataset": {"path": "data", "features": {"field": {"encoder": "identity", "shape": [4]}}, "target": {"energy": "identity"}},
    }  # fmt: skip
    with pytest.raises(ConfigError, match=f"toy.yaml: source.tables.rows{message}"):
        parse(values, "toy.yaml")
