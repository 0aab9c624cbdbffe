"""A network made by a plain function: of a module, which a config names, or of a notebook, whose text the config holds."""

import linecache
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module, reload
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest
import torch
from config_remedies import VALUES
from torch import nn

from pipelines.config import Config, load, parse
from pipelines.config.tasks.functions import FunctionSettings, read_task
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError
from pipelines.notebook.python_config import function_task, task_values
from pipelines.tasks.data import Data
from pipelines.tasks.network_function import NetworkFunction

COLUMNS = (
    TensorColumn(name="age", dtype="float32"),
    TensorColumn(name="job", dtype="int32", cardinality=5),
    TensorColumn(name="rich", dtype="uint8", role="target", cardinality=2),
)
MODULE = """
import torch
from torch import nn

def make_network(columns, width: int = 8, hidden=(4, 4), *, scale=1.0, deep=False):
    torch.relu
    return nn.Sequential(columns.inputs(), nn.Linear(columns.width, width), nn.ReLU(), nn.Linear(width, columns.outputs))

linear = lambda columns: nn.Sequential(columns.inputs(), nn.Linear(columns.width, columns.outputs))
"""


def config(kind: str, **task: Any) -> Config:
    return parse({**VALUES, "task": {"kind": kind, **task}}, "x.yaml")


def bind(settings: Any) -> NetworkFunction:
    assert isinstance(settings, FunctionSettings)
    return NetworkFunction(settings, Data(COLUMNS, ("no", "yes"), (30, 10)))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the module `own_network`, from which Python imports."""
    (tmp_path / "own_network.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("own_network", None)


def run_cell(text: str, number: int = 1) -> dict[str, Any]:
    """The names that a cell of a notebook defines, as IPython runs it."""
    main = sys.modules["__main__"]
    file = f"/tmp/ipykernel_7/{number}.py"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, Any] = {"__name__": main.__name__}
    exec(compile(text, file, "exec"), names)
    return names


def test_parameters_of_a_function_are_settings_and_its_network_trains(folder: Path) -> None:
    settings = config("own_network:make_network", width="3", hidden=[5], class_weights="balanced").task
    assert settings.parameters == {"width": 3, "hidden": (5,), "scale": 1.0, "deep": False}
    task = bind(settings)
    task.check()
    model = task.model()
    rows = {"age": torch.ones(4), "job": torch.arange(4, dtype=torch.int32), "rich": torch.tensor([0, 1, 1, 0], dtype=torch.uint8)}
    loss, _ = task.loss(model, rows)
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert bind(config("own_network:linear").task).model()(rows).shape == (4, 1)


def test_the_settings_are_read_without_running_the_module(folder: Path) -> None:
    (folder / "own_network.py").write_text(f"1 / 0\n{MODULE}")
    assert config("own_network:make_network").task.parameters["width"] == 8
    assert "own_network" not in sys.modules


def test_a_model_s_identity_has_the_code_and_the_parameters(folder: Path) -> None:
    first = config("own_network:make_network")
    assert first == config("own_network:make_network") and cloudpickle.loads(cloudpickle.dumps(first)) == first
    assert first.data_identity == parse(VALUES, "x.yaml").data_identity
    (folder / "own_network.py").write_text(f"{MODULE}# another one\n")
    identities = {
        first.model_identity,
        config("own_network:make_network").model_identity,
        config("own_network:make_network", width=9).model_identity,
    }
    assert len(identities) == 3
    with pytest.raises(ValueError, match=r"has SHA-256 .* not the recorded one; restore it, or train a new model") as error:
        read_task(first.task.model_dump())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("definition", "fault"),
    [
        ("make_network()", "takes no columns; write it with a parameter, as def make_network(columns)"),
        ("make_network(columns, kind=1)", "has a parameter kind, which is a setting of every task; rename it"),
        ("make_network(columns, parameters=1)", "has a parameter parameters, which is a setting of every task; rename it"),
        ("make_network(columns, implementation='a')", "has a parameter implementation, which is a setting of every task; rename it"),
        ("make_network(columns, passthrough=1)", "has a parameter passthrough, which is a setting of every task; rename it"),
        ("make_network(columns, _width=1)", "has a parameter _width, which is a setting of every task; rename it"),
        (
            "make_network(columns, width)",
            "has a parameter width that no setting can fill; give it a default of numbers or text, as width=64",
        ),
        ("make_network(columns, width=None)", "has a parameter width that no setting can fill"),
        ("make_network(columns, *, width=[1, 'a'])", "has a parameter width that no setting can fill"),
    ],
)
def test_a_function_that_no_config_can_call_is_refused(folder: Path, definition: str, fault: str) -> None:
    (folder / "own_network.py").write_text(f"def {definition}: pass\n")
    with pytest.raises(ConfigError) as error:
        config("own_network:make_network")
    assert str(error.value).startswith(f"x.yaml: task.kind: own_network:make_network {fault}") and "\n" not in str(error.value)


def test_a_parameter_of_another_type_and_an_unknown_one_are_errors_of_the_config(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"x.yaml: task.width: must be a whole number \(got many\)"):
        config("own_network:make_network", width="many")
    with pytest.raises(ConfigError, match=r"x.yaml: task.widht: no such setting; did you mean width"):
        config("own_network:make_network", widht=3)


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("return 7", "which returned int; return a torch.nn.Module"),
        ("return columns.network", "fails: AttributeError: 'NetworkColumns' object has no attribute 'network'; correct the function"),
        ("import torch; return torch.nn.Linear(2, 2)", "fails: "),
        ("return columns.inputs()", "gives (2, 7) for 2 rows; return (rows, 1), as a last layer of width columns.outputs does"),
    ],
)
def test_a_network_that_does_not_fit_is_refused_before_a_worker_starts(folder: Path, body: str, fault: str) -> None:
    (folder / "own_network.py").write_text(f"def make_network(columns):\n    {body}\n")
    with pytest.raises(ConfigError) as error:
        bind(config("own_network:make_network").task).check()
    assert fault in str(error.value) and "\n" not in str(error.value)


CELL = """
import torch
from torch import nn
from torch.nn.functional import relu

WIDTH = 6

class Base(nn.Module):
    scale = 2

class Net(Base):
    def __init__(self, columns, width):
        super().__init__()
        self.names = [column.name for column in columns]
        self.first, self.last = nn.Linear(len(self.names), width), nn.Linear(width, columns.outputs)

    def forward(self, batch):
        return self.last(relu(self.first(torch.stack([batch[name].float() * self.scale for name in self.names], dim=1))))

def make_network(columns, width=WIDTH):
    return Net(columns, width)

def with_width(count):
    def inner(columns):
        return Net(columns, count)
    return inner

closure = with_width(3)
pair = (lambda columns: Net(columns, 4)), (lambda columns: Net(columns, 5))
"""


def test_functions_of_a_notebook_carry_their_text_and_run_in_another_process(tmp_path: Path) -> None:
    names = run_cell(CELL)
    widths = {}
    for name, function in {"f": names["make_network"], "c": names["closure"], "l": names["pair"][0], "m": names["pair"][1]}.items():
        values = task_values(function)
        task = bind(config(**values).task)
        task.check()
        widths[name] = task.model().first.out_features
    assert widths == {"f": 6, "c": 3, "l": 4, "m": 5}
    # A file has all of it, and needs nothing else.
    resolved = config(**task_values(names["make_network"]), width=7)
    file = tmp_path / "x.yaml"
    file.write_text(resolved.model_dump_json(by_alias=True, exclude_unset=True))
    assert load(file) == resolved
    program = f"from pipelines.config import load; print(load({str(file)!r}).model_identity)"
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == resolved.model_identity


CELL_OF_NAMES = """
from typing import Optional
import numpy as np
import torch
from torch import nn, relu
from torch.nn.init import xavier_uniform_ as initialise

dtype, sqrt, RATES = torch.float32, np.sqrt, {"first": [0.5, None], "last": (1, True)}

class Net(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.inputs, self.last = columns.inputs(), nn.Linear(columns.width, columns.outputs)
        initialise(self.last.weight)

    def forward(self, batch: Optional[dict]):
        return self.last(relu(self.inputs(batch)).to(dtype)) * float(sqrt(4)) * RATES["first"][0]

Alias = Net

def even(count):
    return count == 0 or odd(count - 1)

def odd(count):
    return count != 0 and even(count - 1)

task = lambda columns: Alias(columns) if even(4) else None
"""


def test_a_text_has_types_dtypes_functions_in_c_aliases_and_functions_that_call_each_other() -> None:
    bind(config(**task_values(run_cell(CELL_OF_NAMES)["task"])).task).check()


def test_comments_do_not_change_a_function_s_identity() -> None:
    first, second = run_cell(CELL), run_cell(CELL.replace("return Net(columns, width)", "return Net(columns, width)  # it is"), 2)
    assert function_task(first["make_network"]) == function_task(second["make_network"])


@pytest.mark.parametrize(
    ("cell", "fault"),
    [
        (
            "import torch\nx = torch.ones(2)\ntask = lambda columns: x",
            "needs x of type Tensor, which no text can hold; make it inside the function",
        ),
        (
            "NAMES = {'a', 'b'}\ntask = lambda columns: NAMES",
            "needs NAMES of type set, which no text can hold; make it inside the function",
        ),
        ("NAMES = {'x': [{1, 2}]}\ntask = lambda columns: NAMES", "needs NAMES of type dict, which no text can hold; make it inside"),
        ("def task(columns, x={1, 2}): pass", "needs a default of task of type set, which no text can hold; make it inside"),
        ("def task(columns, x=object()): pass", "needs a default of task of type object, which no text can hold; make it inside"),
        (
            "import own_network\ntask = lambda columns: own_network.make_network(columns)",
            "needs own_network of own_network, which is not installed; move the function into own_network, and pass it from there",
        ),
        (
            "def f(k):\n    return lambda columns: g(columns, k)\nk = 2\ndef g(columns, n): return k\ntask = f(1)",
            "needs two values called k; rename one of them",
        ),
        ("class task: pass", "task is task, which is no function; pass one that returns the network, as lambda columns: make(columns)"),
        ("task = 7", "task is int, which is no function; pass one"),
    ],
)
def test_what_a_text_cannot_hold_is_one_line(folder: Path, cell: str, fault: str) -> None:
    with pytest.raises(ConfigError) as error:
        task_values(run_cell(cell)["task"])
    assert fault in str(error.value) and "\n" not in str(error.value)


def test_a_function_without_a_text_is_one_line() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("task = lambda columns: columns", names)
    with pytest.raises(ConfigError, match=r"the text of <lambda> is not known; write it into a file, such as network.py, and pass the"):
        function_task(names["task"])


def test_a_module_that_was_edited_since_it_was_imported_is_refused_in_a_line(folder: Path) -> None:
    task = bind(config("own_network:make_network").task)
    task.check()
    task.check()
    (folder / "own_network.py").write_text(MODULE.replace("nn.ReLU()", "nn.Tanh()"))
    os.utime(folder / "own_network.py", (0, 0))  # Python knows compiled files by seconds
    with pytest.raises(ConfigError, match=r"has changed since this process imported it; restart the notebook's kernel, or import") as error:
        bind(config("own_network:make_network").task).check()
    assert "\n" not in str(error.value)
    reload(sys.modules["own_network"])  # the remedy
    assert isinstance(bind(config("own_network:make_network").task).model()[2], nn.Tanh)


def test_a_module_whose_constant_was_edited_since_it_was_imported_is_refused_until_it_is_loaded_again(folder: Path) -> None:
    module = "from torch import nn\nWIDTH = 64\ndef make_network(columns):\n    return nn.Linear(columns.width, WIDTH)\n"
    (folder / "own_network.py").write_text(module)
    assert bind(config("own_network:make_network").task).model().out_features == 64
    (folder / "own_network.py").write_text(module.replace("64", "128"))
    with pytest.raises(ConfigError, match="has changed since this process imported it; restart the notebook's kernel, or import"):
        bind(config("own_network:make_network").task).model()
    reload(sys.modules["own_network"])
    assert bind(config("own_network:make_network").task).model().out_features == 128


def test_a_module_with_functions_of_one_name_is_not_taken_for_a_changed_one(folder: Path) -> None:
    definitions = "first = lambda columns: columns.inputs()\nlast = lambda columns: columns.outputs\n"
    branches = "if True:\n    def make(columns): return 1\nelse:\n    def make(columns): return 2\n"
    (folder / "own_network.py").write_text(definitions + branches)
    for _ in range(2):
        assert isinstance(bind(config("own_network:first").task).model(), nn.Module)


def test_a_set_of_one_value_is_in_the_text() -> None:
    assert "NAMES = {'a'}" in function_task(run_cell("NAMES = {'a'}\ntask = lambda columns: NAMES")["task"])["source"]


def test_a_function_of_a_module_is_named_by_its_path(folder: Path) -> None:
    module: ModuleType = import_module("own_network")
    assert function_task(module.make_network) == {"kind": "own_network:make_network"}
    assert "source" in function_task(module.linear), "Python does not know the name of a lambda"


def test_a_source_that_is_no_python_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"task.kind: task.source is no Python: invalid syntax.*; pass the function to api.fit"):
        config("__main__:make_network", source="def make_network(:")


def test_inputs_are_those_of_a_tabular_network() -> None:
    torch.manual_seed(1)
    ours = bind(config("__main__:f", source="f = lambda columns: columns.inputs()").task).model()
    torch.manual_seed(1)
    assert isinstance(ours, nn.Module) and [tuple(value.shape) for value in ours.state_dict().values()] == [(5, 6)]
