"""A config that Python has built, as the plain values of a YAML file: sections, and the network of a task from a Python function, by its
import path, or, for a function of a notebook, a lambda or a closure, by its text.

The text contains what the function needs: imports, functions and classes of the notebook, and plain values. So workers and the model's
users need neither the notebook nor a pickle.
"""

import ast
import builtins
import linecache
import symtable
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import packages_distributions
from types import CodeType, FunctionType, ModuleType
from typing import Any

from pipelines import config as configs
from pipelines.config import home, parse, sections
from pipelines.config.load import with_absolute_paths
from pipelines.config.section import Section
from pipelines.errors import ConfigError

_TAGS = frozenset({"encoder", "format", "kind"})
"""Settings that name a section's class: a file has them, also where a class has only this value."""
_LAMBDA = "make_network"
"""Name of a function that has none."""
_MOST_CHARACTERS = 10_000
_INTO_FILE = "write it into a file, such as network.py, and pass the function that you import from there"
_INSIDE = "make it inside the function"
Definition = ast.FunctionDef | ast.ClassDef | ast.Lambda


def build_config(
    *,
    name: str,
    source: sections.Source | Mapping[str, Any],
    dataset: sections.Dataset | Mapping[str, Any],
    task: configs.TaskSettings | Mapping[str, Any] | str | Callable[..., Any],
    train: sections.Train | Mapping[str, Any] | None = None,
    tracking: sections.Tracking | Mapping[str, Any] | None = None,
    export: sections.Export | Mapping[str, Any] | None = None,
    endpoint: sections.Endpoint | Mapping[str, Any] | None = None,
    registry: sections.Registry | Mapping[str, Any] | None = None,
    tune: sections.Tune | Mapping[str, Any] | None = None,
) -> configs.Config:
    """A config built in Python, equal to that of a file with these values. A section is one of `pipelines.config.sections`, or a mapping;
    a task is also a name, or a function that returns the network.

    Raises ConfigError with a line for each error. Relative paths start at LOCKSTEP_HOME, by default the current folder."""
    settings: dict[str, Any] = {"source": source, "dataset": dataset, "task": task_values(task), "train": train, "tracking": tracking}
    settings |= {"export": export, "endpoint": endpoint, "registry": registry, "tune": tune}
    values = {"name": name, **{section: section_values(value) for section, value in settings.items() if value is not None}}
    return with_absolute_paths(parse(values, "api.Config"), home())


def task_values(task: Any) -> dict[str, Any]:
    """The values of `task` for a name of a kind, a mapping, a section, or a function that returns the network."""
    if isinstance(task, str):
        return {"kind": task}
    values: dict[str, Any] = section_values(task) if isinstance(task, Section | Mapping) else function_task(task)
    return values


def section_values(value: Any) -> Any:
    """A section as a mapping of the settings that were given, a tuple as a list; also within mappings and lists."""
    if isinstance(value, Section):
        fields = type(value).model_fields
        names = [name for name in fields if name in value.model_fields_set | _TAGS]
        return {fields[name].alias or name: section_values(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {name: section_values(inner) for name, inner in value.items()}
    return [section_values(inner) for inner in value] if isinstance(value, list | tuple) else value


def function_task(function: Callable[..., Any]) -> dict[str, Any]:
    """The values of `task` for a function that takes the columns and returns a network.

    Raises ConfigError if it is no function, or if it needs what no text can hold."""
    if not isinstance(function, FunctionType):
        kind = function.__name__ if isinstance(function, type) else type(function).__name__
        raise ConfigError(f"task is {kind}, which is no function; pass one that returns the network, as lambda columns: make(columns)")
    module = sys.modules.get(function.__module__)
    is_in_file = function.__module__ != "__main__" and getattr(module, "__file__", None) is not None
    if is_in_file and getattr(module, function.__qualname__, None) is function:
        return {"kind": f"{function.__module__}:{function.__name__}"}
    text = _Text(function)
    return {"kind": f"__main__:{text.name}", "source": text.write()}


class _Text:
    """The text of a function, preceded by everything that it refers to."""

    def __init__(self, function: FunctionType) -> None:
        self._function = function
        self.name = _LAMBDA if function.__name__ == "<lambda>" else function.__name__
        self._parts: dict[str, str] = {}
        """Statements by the name that each defines, what is needed first."""
        self._values: dict[str, Any] = {}

    def write(self) -> str:
        self._values[self.name] = self._function
        self._add_definition(self.name, self._function)
        return "\n".join(self._parts.values()) + "\n"

    def _add(self, name: str, value: Any) -> None:
        """Add the statement that defines a name."""
        if name in self._parts:
            if value is not self._values[name] and _literal(value) != self._parts[name].removeprefix(f"{name} = "):
                raise self._refusal(f"two values called {name}", "rename one of them")
            return
        self._values[name] = value
        if isinstance(value, ModuleType):
            self._check_installed(name, value.__name__)
            self._parts[name] = f"import {value.__name__} as {name}" if name != value.__name__ else f"import {name}"
        elif (literal := _literal(value)) is not None:
            self._parts[name] = f"{name} = {literal}"
        elif isinstance(value, type | FunctionType) and value.__module__ == self._function.__module__:
            if value.__name__ in (name, "<lambda>"):
                self._add_definition(name, value)
            else:  # another name of it
                self._add(value.__name__, value)
                self._parts[name] = f"{name} = {value.__name__}"
        elif path := _import_path(value):
            self._check_installed(name, path[0])
            self._parts[name] = f"from {path[0]} import {path[1]} as {name}"
        else:
            raise self._refusal(f"{name} of type {type(value).__name__}, which no text can hold", _INSIDE)

    def _add_definition(self, name: str, part: Any) -> None:
        """Add a function or a class of the notebook, after what it refers to."""
        self._parts[name] = ""  # it may refer to itself
        definition = self._find_definition(part)
        if isinstance(definition, ast.FunctionDef):
            definition.args.defaults = [self._default(name, value) for value in part.__defaults__ or ()]
            names = [argument.arg for argument in definition.args.kwonlyargs]
            by_name = part.__kwdefaults__ or {}
            definition.args.kw_defaults = [self._default(name, by_name[key]) if key in by_name else None for key in names]
        elif isinstance(definition, ast.Lambda):
            definition.args.defaults = [self._default(name, value) for value in part.__defaults__ or ()]
        text = ast.unparse(definition)
        text = f"{name} = {text}" if isinstance(definition, ast.Lambda) else text
        visible = _visible_names(part, self._function.__globals__)
        for other in _names_referred_to(text):
            if other in visible and other != name:
                self._add(other, visible[other])
        del self._parts[name]
        self._parts[name] = text

    def _find_definition(self, part: Any) -> Definition:
        """The definition in the text of the file or the cell. Raises ConfigError if Python does not have that text any more."""
        codes = list(_codes(part))
        for code in codes:
            definitions = [node for node in _nodes(code.co_filename) if isinstance(node, Definition) and _defines(node, part, code)]
            if len(definitions) == 1:
                return definitions[0]
        if not codes:  # a class without functions does not say where it stands
            cells = [file for file in linecache.cache if "ipykernel_" in file or file.startswith("<ipython-input")]  # as IPython names them
            files = [self._function.__code__.co_filename, *cells]
            if classes := [
                node for file in files for node in _nodes(file) if isinstance(node, ast.ClassDef) and node.name == part.__name__
            ]:
                return classes[-1]
        raise ConfigError(f"task is the function {self.name}, and the text of {part.__name__} is not known; {_INTO_FILE}")

    def _default(self, name: str, value: Any) -> ast.expr:
        if (literal := _literal(value)) is None:
            raise self._refusal(f"a default of {name} of type {type(value).__name__}, which no text can hold", _INSIDE)
        return ast.parse(literal, mode="eval").body

    def _check_installed(self, name: str, module: str) -> None:
        """Raise ConfigError for a module that is neither installed nor Python's: neither workers nor the model's users have it."""
        top = module.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in packages_distributions() and top != "pipelines":
            raise self._refusal(f"{name} of {module}, which is not installed", f"move the function into {top}, and pass it from there")

    def _refusal(self, need: str, remedy: str) -> ConfigError:
        return ConfigError(f"task is the function {self.name}, which needs {need}; {remedy}")


def _literal(value: Any) -> str | None:
    """A plain value as Python writes it; None if it is none, or has a set, whose order is another one in each process."""
    text = repr(value) if isinstance(value, bool | int | float | str | bytes | list | tuple | dict | set | None) else ""
    try:
        if not text or len(text) > _MOST_CHARACTERS or ast.literal_eval(text) != value:
            return None
        has_order = not any(isinstance(node, ast.Set) and len(node.elts) > 1 for node in ast.walk(ast.parse(text)))
        return text if has_order else None
    except (ValueError, SyntaxError):
        return None


def _nodes(file: str) -> Iterator[ast.AST]:
    """The nodes of the text of a file or a cell; none if Python does not have it any more."""
    text = "".join(linecache.getlines(file))
    return ast.walk(ast.parse(text)) if text else iter(())


def _import_path(value: Any) -> tuple[str, str] | None:
    """The module that has the value, and its name there; None if it is not found."""
    names = [getattr(value, attribute, None) for attribute in ("__qualname__", "__name__", "_name")]
    modules = (getattr(value, "__module__", None), "torch", "numpy")  # whose functions in C know no module
    if str(type(value)) == "<class 'torch.dtype'>":
        names.append(str(value).removeprefix("torch."))
    paths = ((module, name) for module in modules for name in names if isinstance(module, str) and isinstance(name, str))
    return next(((module, name) for module, name in paths if getattr(sys.modules.get(module), name, None) is value), None)


def _codes(part: Any) -> Iterator[CodeType]:
    """The code of a function, or of the functions of a class that stand in its body."""
    if isinstance(part, FunctionType):
        yield part.__code__
    for member in vars(part).values() if isinstance(part, type) else ():
        function = getattr(member, "__func__", getattr(member, "fget", member))
        if isinstance(function, FunctionType) and function.__qualname__.startswith(f"{part.__qualname__}."):
            yield function.__code__


def _defines(node: ast.AST, part: Any, code: CodeType) -> bool:
    """Whether a node is the definition of a function, or of the class of which the code is a method's."""
    match node:
        case ast.ClassDef(name=name) if isinstance(part, type):
            return name == part.__name__ and node.lineno <= code.co_firstlineno <= (node.end_lineno or 0)
        case ast.FunctionDef(name=name) if isinstance(part, FunctionType):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            return name == code.co_name and first == code.co_firstlineno
        case ast.Lambda() if isinstance(part, FunctionType) and code.co_name == "<lambda>":
            return node.lineno == code.co_firstlineno and _spans(node.body, code)
    return False


def _spans(body: ast.expr, code: CodeType) -> bool:
    """Whether the code is that of an expression: several lambdas may stand in a line."""
    places = [(line, column) for line, _, column, _ in code.co_positions() if line is not None and column is not None]
    ends = [(line, column) for _, line, _, column in code.co_positions() if line is not None and column is not None]
    # The instructions before the first of the body have the place of the lambda itself.
    inside = [place for place in places if place >= (body.lineno, body.col_offset)]
    return bool(inside) and max(ends) == (body.end_lineno, body.end_col_offset) and min(inside) == (body.lineno, body.col_offset)


def _visible_names(part: Any, names: dict[str, Any]) -> dict[str, Any]:
    """Values by the names that the code of a function or a class can refer to, in a notebook with these names; without Python's own."""
    members = vars(part).values() if isinstance(part, type) else (part,)
    functions = [member for member in members if isinstance(member, FunctionType)]
    visible = dict(names)
    for function in functions:
        visible |= function.__globals__
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        visible |= {name: cell.cell_contents for name, cell in cells if name != "__class__"}
    return {name: value for name, value in visible.items() if getattr(builtins, name, names) is not value}


def _names_referred_to(text: str) -> list[str]:
    """The names that a text takes from outside, in their order."""

    def walk(table: symtable.SymbolTable) -> Iterator[str]:
        for symbol in table.get_symbols():
            if symbol.is_referenced() and symbol.is_global():
                yield symbol.get_name()
        for inner in table.get_children():
            yield from walk(inner)

    return sorted(set(walk(symtable.symtable(text, "<task>", "exec"))))
