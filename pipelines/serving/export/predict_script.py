"""The part of a folder that predicts from raw rows without Lockstep: `predict.py`, its modules, `examples.json` and README.md.

The modules are Lockstep's, and those of a user's own encoders. Imports below `if TYPE_CHECKING` do not count, and a package of Lockstep's
is only the folder of its modules: what its `__init__` imports for the convenience of others is left out.
"""

import ast
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pipelines.errors import ExportError
from pipelines.serving.export.predict_program import EXAMPLES
from pipelines.serving.model.logged_model import write_zip

LOCKSTEP = "pipelines"
HEAVY = ("mlflow", "pydantic", "pyspark", "ray", "torch", "yaml")
"""Packages that an exported folder does without, as its code may not import them."""
SCRIPT, CODE, README = "predict.py", "code.zip", "README.md"
TOLERANCE = 1e-3
"""Permitted difference of a number in a prediction; relative, for numbers beyond 1. Networks in floats differ in their last bits."""
PROGRAM = "pipelines.serving.export.predict_program"
_CHECK_SECONDS = 300
_WITHOUT_HEAVY = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({HEAVY!r}))
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a script as where packages that an exported folder does without are not installed."""


@dataclass(frozen=True)
class Modules:
    """The code of an archive."""

    files: Mapping[str, bytes]
    """Contents by their paths in the archive."""
    needs: frozenset[str]
    """Packages of others that are imported with the modules. Those imported in functions are left out: not every row takes them."""


def find_modules(roots: Iterable[str]) -> Modules:
    """The modules of these names, and all that they import. Raises ExportError if one of them needs a package that is HEAVY."""
    search = _Search({name.partition(".")[0] for name in roots} | {LOCKSTEP})
    for name in roots:
        search.add(name, ())
    return Modules(search.files, frozenset(search.needs))


@dataclass
class _Search:
    packages: set[str]
    """Packages whose modules are taken."""
    files: dict[str, bytes] = field(default_factory=dict)
    needs: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    installed: set[str] = field(default_factory=lambda: set(packages_distributions()))
    """Packages of distributions, which takes a second to find out."""

    def add(self, name: str, importers: tuple[str, ...]) -> None:
        """Add a module and what it imports; `importers` are those through which it is imported, the first one first."""
        if name in self.names:
            return
        self.names.add(name)
        spec = find_spec(name)
        if spec is None or spec.loader is None or not spec.origin:
            raise ExportError(f"the code of module {name} is not found; encode its columns yourself")
        loader: Any = spec.loader
        content: bytes = loader.get_data(spec.origin)
        path = name.replace(".", "/")
        self.files[f"{path}/__init__.py" if spec.submodule_search_locations else f"{path}.py"] = content
        importers = (*importers, name)
        parent = name
        # Lockstep's packages are empty unless something is imported from them, as are those without a file.
        while parent := parent.rpartition(".")[0]:
            parent_spec = find_spec(parent)
            if parent.partition(".")[0] == LOCKSTEP or parent_spec is None or not parent_spec.origin:
                self.files.setdefault(f"{parent.replace('.', '/')}/__init__.py", b"")
            else:
                self.add(parent, importers)
        package = name if spec.submodule_search_locations else name.rpartition(".")[0]
        for imported, is_always in _imports(ast.parse(content), package):
            self._add_import(imported, is_always, importers)

    def _add_import(self, name: str, is_always: bool, importers: tuple[str, ...]) -> None:
        top, parent = name.partition(".")[0], name.rpartition(".")[0]
        if top in sys.stdlib_module_names:
            return
        if top not in self.packages and top not in HEAVY and top not in self.installed and find_spec(top) is not None:
            self.packages.add(top)  # of no distribution: it stands beside a user's encoders
        if top in self.packages:
            try:  # `from package import name` may mean a module
                is_module = not parent or find_spec(name) is not None
            except ModuleNotFoundError:  # the parent is no package
                is_module = False
            self.add(name if is_module else parent, importers)
        elif is_always and top in HEAVY:
            chain = " imports ".join((*importers, top))
            raise ExportError(f"{chain}, which an exported folder does without; import settings below `if TYPE_CHECKING:`")
        elif is_always:
            self.needs.add(top)


def _imports(tree: ast.AST, package: str, is_always: bool = True) -> Iterator[tuple[str, bool]]:
    """The names that code imports, and whether with the module itself, instead of in a function."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.Import(names=names):
                yield from ((alias.name, is_always) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                parents = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                base = ".".join([*parents, *([module] if module else [])])
                yield from ((f"{base}.{alias.name}", is_always) for alias in names)
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"), orelse=orelse):
                yield from _imports(ast.Module(orelse, []), package, is_always)
            case _:
                yield from _imports(node, package, is_always and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def script_modules(description: Mapping[str, Any]) -> Modules:
    """The program with the encoders and the answers of a description. Raises ExportError if they need a package that is HEAVY."""
    answer = description["answer"]
    encoders = [entry.get("encoded by") or entry["refuses"] for entry in description["inputs"]]
    encoders += [answer["target"]] if "target" in answer else []
    paths = [encoder["implementation"] for encoder in encoders] + [answer["form"]] * (":" in answer["form"])
    return find_modules(dict.fromkeys([PROGRAM, *(path.partition(":")[0] for path in paths)]))


def write_script(folder: Path, modules: Modules, readme: str, examples: Mapping[str, Any]) -> None:
    """Write the four files. `examples` has `rows`, their `predictions`, whether numbers are compared (`exact`) and their `tolerance`."""
    script = Path(__file__).parent / "templates/predict.txt"
    (folder / SCRIPT).write_text(script.read_text(encoding="utf-8"), encoding="utf-8")
    write_zip(modules.files, folder / CODE)
    (folder / EXAMPLES).write_text(json.dumps(examples, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    (folder / README).write_text(readme, encoding="utf-8")


def check_script(folder: Path, has_own_task: bool) -> str:
    """Run the script on its examples, in a process of its own. Raises ExportError if a prediction differs, or takes too long."""
    command = [sys.executable, "-I", "-c", _WITHOUT_HEAVY, str(folder / SCRIPT), "--check"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_CHECK_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise ExportError(
            f"{SCRIPT} has not predicted the rows of {EXAMPLES} within {_CHECK_SECONDS} s; "
            "export again while the machine does less beside it"
        ) from error
    if ended.returncode:
        last = (ended.stderr.strip() or f"it ended with {ended.returncode}").splitlines()[-1]
        remedy = "override `prediction_form` of your task as well as `predict`" if has_own_task else "use the model in MLflow"
        raise ExportError(f"{SCRIPT} does not predict what the model in MLflow predicts: {last}; {remedy}")
    return ended.stdout.strip()
