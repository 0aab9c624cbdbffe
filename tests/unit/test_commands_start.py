"""Everything that a person may start does start, in its smallest form. The lists come from the code, so that what is new is here, too.

1. Every command of every target of the Makefile, and every benchmark: its program is there, and loads all that it imports.
2. Every case of `make chaos`, up to its first process, whose command and config that process would take.
3. Every fault of `tests/mutations`: it changes one place of the code, and there are tests to notice it.
"""

import importlib.util
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, nullcontext
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import chaos.__main__ as chaos_command
import pytest
import ray
from chaos import starts, training
from chaos.processes import Server
from stores import new_store
from test_docs import MAKE_TARGETS
from test_makefile import print_commands

from pipelines.config import load

ROOT = Path(__file__).parents[2]
VARIABLE = re.compile(r"\w+=")
OWN = ("benchmarks", "chaos", "pipelines")
"""Packages of this project."""
OF_EXTRAS = ("mkdocs",)
"""Modules that only an extra installs."""


def modules_with_main() -> list[str]:
    """Modules of `benchmarks` that are commands."""
    files = [file.relative_to(ROOT) for file in (ROOT / "benchmarks").rglob("*.py") if 'if __name__ == "__main__"' in file.read_text()]
    return sorted(".".join(file.with_suffix("").parts) for file in files)


def load_command(module: str, file: str, patch: pytest.MonkeyPatch) -> None:
    """Load a command, with all that it imports. One that parses options prints its help; another one does not begin its work.

    Its docstring may name a PYTHONPATH.
    """
    source = Path(file or importlib.util.find_spec(module).origin)  # type: ignore[union-attr, arg-type]
    patch.setattr(sys, "argv", [str(source), "--help"])
    patch.setattr(os, "environ", os.environ.copy())
    named = re.search(r"PYTHONPATH=(\S+) python", source.read_text())
    for place in [source.parent, *((ROOT / folder for folder in named[1].split(":")) if named else ())]:
        patch.syspath_prepend(place)
    name = "__main__" if "ArgumentParser" in source.read_text() else "loaded"
    ends = pytest.raises(SystemExit, match=r"^0$") if name == "__main__" else nullcontext()
    with ends:
        runpy.run_module(module, run_name=name, alter_sys=True) if module else runpy.run_path(file, run_name=name)


@pytest.mark.parametrize("module", modules_with_main())
def test_every_benchmark_starts(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        load_command(module, "", monkeypatch)
    except ModuleNotFoundError as error:
        requirements = (ROOT / "benchmarks/loader/peers/requirements.txt").read_text().lower()
        assert ".peers." in module and str(error.name).partition(".")[0][:7] in requirements.replace("-", ""), error
        pytest.skip(f"{error.name}: for a peer alone")


def commands_of_make(folder: Path) -> list[list[str]]:
    """Every command of every target, as words, without what installs packages."""
    printed = print_commands(folder, *sorted(MAKE_TARGETS))
    lines = [line for line in printed.splitlines() if not re.search(r"^make(\[\d+\])?:| pip install | -m venv ", line)]
    commands = [shlex.split(line, comments=True) for line in lines]
    return [[word for word in words if not VARIABLE.match(word)] for words in commands if words]


def test_every_command_of_make_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = commands_of_make(tmp_path)
    assert len(commands) > 20
    for words in commands:
        program = words[words.index("do") + 1] if "do" in words else words[0]
        assert shutil.which(program) or program in ("test", "set") or (ROOT / program).exists(), program
        if program.endswith(".sh"):
            subprocess.run(["bash", "-n", program], cwd=ROOT, check=True)
        if not Path(program).name.startswith("python"):
            continue
        arguments = words[words.index(program) + 1 :]
        paths = [word for word in arguments if word.startswith("tests/") or word.endswith(".py")]
        assert all((ROOT / path).exists() for path in paths), words
        if arguments[0] == "-m":
            module = arguments[1]
            is_package = (ROOT / "tests" / module / "__main__.py").exists()
            if module.partition(".")[0] in OWN and "$" not in module:
                load_command(f"{module}.__main__" if is_package else module, "", monkeypatch)
            else:
                assert "$" in module or module in OF_EXTRAS or importlib.util.find_spec(module), words
        elif arguments[0].endswith(".py"):
            load_command("", str(ROOT / arguments[0]), monkeypatch)


class BegunError(BaseException):
    """In place of a case's first process. No `except Exception` catches it."""


def begin(*command: Any, **settings: Any) -> None:
    words = command[0] if command else []
    raise BegunError(list(map(str, words)) if isinstance(words, list | tuple) else [])


class NoNodes:
    """In place of a Ray of three nodes."""

    address, variables = "", {"RAY_AUTH_MODE": "token"}

    def close(self) -> None: ...


class NoServer(NoNodes):
    def __init__(self, folder: Path) -> None:
        self.uri = new_store(folder)


def check_command(words: list[str]) -> None:
    """Check that a process of these words would find its program, and take its config."""
    assert words[0] == sys.executable or Path(words[0]).name.startswith("python"), words
    scripts = [word for word in words if word.startswith("jobs/")]
    assert all((ROOT / script).exists() for script in scripts)
    if "-m" in words:
        assert importlib.util.find_spec(words[words.index("-m") + 1]), words
    for config in (word for word in words if word.endswith(".yaml")):
        load(Path(config))


@pytest.mark.parametrize("case", chaos_command.CASES)
def test_every_case_of_chaos_begins(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_ins: dict[Any, dict[str, Any]] = {
        chaos_command: {"Nodes": NoNodes, "cluster": lambda settings: nullcontext(), "FUZZ_FAULTS": 20},
        training: {"Nodes": NoNodes, "Server": NoServer},
        starts: {"busy_cores": nullcontext},
        subprocess: {"Popen": begin},
        ray: {"init": begin},
        BaseProcess: {"start": begin},
    }
    for place, values in stand_ins.items():
        for name, value in values.items():
            monkeypatch.setattr(place, name, value)
    run: Callable[[], Any] = partial(chaos_command.CASES[case], case, 1, tmp_path, 60.0)
    if case == "fuzz":  # without a process
        assert run()[1]
        return
    with pytest.raises(BegunError) as begun:
        run()
    (words,) = begun.value.args
    if words:
        check_command(words)


def test_the_server_that_chaos_kills_answers(tmp_path: Path) -> None:
    with closing(Server(tmp_path)) as server:
        assert server.uri.startswith("http")


def test_every_mutation_changes_one_place_and_has_tests() -> None:
    for fault in runpy.run_path(str(ROOT / "tests/mutations/faults.py"))["FAULTS"]:
        sound = (ROOT / fault.file).read_text()
        assert sound.count(fault.text) == 1 and fault.instead != fault.text, f"{fault.file}: {fault.text}"
        if fault.file.endswith(".py"):
            compile(sound.replace(fault.text, fault.instead), fault.file, "exec")
        paths = [word.partition("::")[0] for word in shlex.split(fault.tests) if word.startswith("tests/")]
        assert paths and all((ROOT / path).exists() for path in paths), fault.tests
