"""Finds the modules that encoders import, for the archive of an exported folder: Lockstep's, and those of a user's own.

Imports below `if TYPE_CHECKING` do not count, and a package of Lockstep's is only the folder of its modules: what its `__init__` imports
for the convenience of others is left out.
"""

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from typing import Any

from pipelines.errors import ExportError

LOCKSTEP = "pipelines"
HEAVY = ("mlflow", "pydantic", "pyspark", "ray", "torch", "yaml")
"""Packages that an exported folder does without, as its code may not import them."""


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
        self._add_packages(name, (*importers, name))
        package = name if spec.submodule_search_locations else name.rpartition(".")[0]
        for imported, is_always in _imports(ast.parse(content), package):
            self._add_import(imported, is_always, (*importers, name))

    def _add_packages(self, name: str, importers: tuple[str, ...]) -> None:
        """The packages that a module is in. Lockstep's are empty unless something is imported from them, as are those without a file."""
        while name := name.rpartition(".")[0]:
            spec = find_spec(name)
            if name.partition(".")[0] == LOCKSTEP or spec is None or not spec.origin:
                self.files.setdefault(f"{name.replace('.', '/')}/__init__.py", b"")
            else:
                self.add(name, importers)

    def _add_import(self, name: str, is_always: bool, importers: tuple[str, ...]) -> None:
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names:
            return
        if top in self.packages or (top not in HEAVY and self._is_loose(top)):
            self.add(_module_name(name), importers)
        elif is_always and top in HEAVY:
            chain = " imports ".join((*importers, top))
            raise ExportError(f"{chain}, which an exported folder does without; import settings below `if TYPE_CHECKING:`")
        elif is_always:
            self.needs.add(top)

    def _is_loose(self, top: str) -> bool:
        """Whether a package belongs to no distribution, but stands beside a user's encoders."""
        if top not in self.installed and find_spec(top) is not None:
            self.packages.add(top)
        return top in self.packages


def _module_name(name: str) -> str:
    """The module that has a name, or that is named: `from package import name` may mean either."""
    parent = name.rpartition(".")[0]
    try:
        return name if not parent or find_spec(name) else parent
    except ModuleNotFoundError:  # the parent is no package
        return parent


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
