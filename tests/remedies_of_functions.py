"""Remedies of errors of functions that make a network: what raises each, and what it offers instead."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import config_remedies
import torch
from config_remedies import VALUES
from torch import nn

from pipelines.config import parse
from pipelines.config.tasks.functions import FunctionSettings, read_task
from pipelines.data.versions.schema import TensorColumn
from pipelines.notebook.python_config import function_task
from pipelines.tasks.data import Data
from pipelines.tasks.network_function import NetworkFunction

Do = Callable[[Path], Any]
COLUMNS = (TensorColumn(name="age", dtype="float32"), TensorColumn(name="rich", dtype="uint8", role="target", cardinality=2))
LAST_LAYER = "columns.inputs(), torch.nn.Linear(columns.width, columns.outputs)"


def read(definition: str = "def f(columns): pass", **task: Any) -> Do:
    """Reads a config with this function."""
    return lambda folder: parse({**VALUES, "task": {"kind": "__main__:f", "source": definition, **task}}, "x.yaml")


def make(body: str) -> Do:
    """Makes the network of this function, and calls it."""

    def check(folder: Path) -> None:
        settings = read(f"import torch\ndef f(columns):\n    {body}\n")(folder).task
        assert isinstance(settings, FunctionSettings)
        NetworkFunction(settings, Data(COLUMNS, ("no", "yes"), (3, 1))).check()

    return check


def read_recorded(definition: str) -> Do:
    """Reads a function that was recorded when its text was another one."""
    digest = read()(Path()).task.digest
    return lambda folder: read_task({"kind": "__main__:f", "source": definition, "digest": digest})


def linear(columns: Any) -> nn.Module:
    return nn.Sequential(columns.inputs(), nn.Linear(columns.width, columns.outputs))


def read_without_text(folder: Path) -> Any:
    """A function whose text Python does not have."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("f = lambda columns: columns", names)
    return function_task(names["f"])


def need(value: Any) -> Do:
    """A function that needs a value."""
    return lambda folder: function_task(lambda columns: value)


def plain_function(columns: Any) -> Any:
    return config_remedies


CASES: dict[str, tuple[Do, tuple[Do, ...]]] = {
    "task.source is no Python: {}; pass the function": (read("def f("), (lambda folder: function_task(linear),)),
    "takes no columns; write it with a parameter": (read("def f(): pass"), (read(),)),
    "which is a setting of every task; rename it": (read("def f(columns, kind=1): pass"), (read("def f(columns, kinds=1): pass"),)),
    "that no setting can fill; give it a default": (read("def f(columns, width): pass"), (read("def f(columns, width=64): pass"),)),
    "restore it, or train a new model": (
        read_recorded("def f(columns): 1"),
        (read_recorded("def f(columns): pass"), read("def f(columns): 1")),
    ),
    "which is no function; pass one that returns the network": (
        lambda folder: function_task(nn.Linear),
        (lambda folder: function_task(linear),),
    ),
    "write it into a file, such as network.py": (read_without_text, (lambda folder: function_task(linear),)),
    "make it inside the function": (need(torch.ones(2)), (lambda folder: function_task(lambda columns: torch.ones(2)),)),
    "move the function into {}, and pass it from there": (need(config_remedies), (lambda folder: function_task(plain_function),)),
    "{} fails: {}: {}; correct the function": (make("1 / 0"), (make(f"return torch.nn.Sequential({LAST_LAYER})"),)),
    "which fails: {}: {}; correct its code": (
        make("pass\n1 / 0"),
        (make(f"return torch.nn.Sequential({LAST_LAYER})"),),
    ),
}
