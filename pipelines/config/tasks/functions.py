"""Settings of a task whose network is made by a plain function, `module:function`. They are read from its text, which is not run."""

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, Field, ValidationError, field_validator

from pipelines.config.plugins import is_class_path
from pipelines.config.section import extend
from pipelines.config.tasks.base import TaskSettings
from pipelines.config.tasks.task import TASKS

SIMPLE_TYPES = {"bool": bool, "int": int, "float": float, "str": str}


class FunctionSettings(TaskSettings):
    """A network that a function of your own makes. The target determines loss and metrics, and the function's parameters are settings."""

    model_config = ConfigDict(protected_namespaces=())
    implementation: ClassVar[str] = "pipelines.tasks.network_function:NetworkFunction"
    smooths_labels: ClassVar[bool] = True
    current_digest: ClassVar[str] = ""
    source: str = ""
    """Text of a function that stands in no module, such as one of a notebook, which `api.fit` fills in; else empty."""
    digest: str = ""
    """SHA-256 of the function's file, or of `source`; filled in."""

    @property
    def parameters(self) -> dict[str, Any]:
        """Values of the function's parameters besides the columns."""
        return {name: getattr(self, name) for name in type(self).model_fields if name not in FunctionSettings.model_fields}

    @field_validator("digest")
    @classmethod
    def _is_of_present_code(cls, digest: str) -> str:
        if digest not in ("", cls.current_digest):
            raise ValueError(
                f"the function's code has SHA-256 {cls.current_digest[:12]}…, and not the recorded one; restore it, or train a new model"
            )
        return cls.current_digest


def task_settings(task: Mapping[str, Any]) -> type[TaskSettings]:
    """The settings class of a task's plain values: of a kind, or of a function.

    Raises ValueError if there is no such kind."""
    return TASKS.section_class(task)


def function_settings(task: Mapping[str, Any]) -> type[TaskSettings] | None:
    """The settings class of plain values whose kind, `module:function`, names a function in their `source` or else in the module's file;
    None if it names none."""
    kind, source = str(task.get("kind", "")), task.get("source", "")
    if not is_class_path(kind):
        return None
    source = source if isinstance(source, str) else ""
    module, _, name = kind.partition(":")
    try:
        text = source or module_text(module)
        names = dict(_definitions(ast.parse(text)))
    except (SyntaxError, ValueError) as error:
        if source:
            raise ValueError(f"task.source is no Python: {error}; pass the function to api.fit, which writes it") from error
        return None  # the import says why
    return _function_settings(kind, text) if name in names else None


TASKS.recognize_otherwise = function_settings


def read_task(task: Mapping[str, Any]) -> TaskSettings:
    """The settings of a task that were recorded. Raises ValueError, in one line, if its code is not there or another one."""
    settings = task_settings(task)
    try:
        return settings.model_validate(task)
    except ValidationError as error:
        raise ValueError("; ".join(str(fault["msg"]).removeprefix("Value error, ") for fault in error.errors())) from error


def holds_code(task: TaskSettings) -> bool:
    """Whether the settings contain the text of a function, which runs when the network is made."""
    return isinstance(task, FunctionSettings) and bool(task.source)


def module_text(module: str) -> str:
    """The text of a module, whose packages are imported, but not itself; empty if it is not found or is no text."""
    try:
        spec = find_spec(module)
        return Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin and spec.has_location else ""
    except Exception:  # a user's package may raise anything, and the import says what
        return ""


def code_digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _definitions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.Lambda]]:
    """The functions of a module by name."""
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name):
                yield name, node
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda() as definition):
                yield name, definition


@lru_cache(maxsize=64)  # equal code has the same class, so that configs with it are equal
def _function_settings(kind: str, text: str) -> type[FunctionSettings]:
    code = next(definition for name, definition in _definitions(ast.parse(text)) if name == kind.partition(":")[2])
    fields: dict[str, Any] = {
        name: (value_type, Field(default, description="A parameter of the function."))
        for name, value_type, default in _parameters(kind, code.args)
    }
    settings = extend(FunctionSettings, **fields)
    settings.current_digest = code_digest(text)
    return settings


def _parameters(kind: str, arguments: ast.arguments) -> Iterator[tuple[str, Any, Any]]:
    """Name, type and default of each parameter after the first one; `...` without a default."""
    positional = [*arguments.posonlyargs, *arguments.args]
    if not positional:
        raise ValueError(f"{kind} takes no columns; write it with a parameter, as def {kind.partition(':')[2]}(columns)")
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    pairs = chain(zip(positional[1:], defaults[1:], strict=True), zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True))
    for parameter, default in pairs:
        name = parameter.arg
        if name in FunctionSettings.model_fields or name.startswith("_") or hasattr(FunctionSettings, name):
            raise ValueError(f"{kind} has a parameter {name}, which is a setting of every task; rename it")
        value_type, value = _parameter_type(parameter, default)
        if value_type is None:
            raise ValueError(f"{kind} has a parameter {name} that no setting can fill; give it a default of numbers or text, as {name}=64")
        yield name, value_type, value


def _parameter_type(parameter: ast.arg, default: ast.expr | None) -> tuple[Any, Any]:
    """The type of the annotation, or else of the default; None if a config cannot hold it."""
    named = SIMPLE_TYPES.get(parameter.annotation.id) if isinstance(parameter.annotation, ast.Name) else None
    if default is None:
        return named, ...
    try:
        value = ast.literal_eval(default)
    except ValueError:
        return None, ...
    if isinstance(value, list | tuple):
        kinds = {type(element) for element in value}
        element_type: Any = kinds.pop() if len(kinds) == 1 else None
        return (tuple[element_type, ...], tuple(value)) if element_type in SIMPLE_TYPES.values() else (None, ...)
    return (named or type(value), value) if type(value) in SIMPLE_TYPES.values() else (None, ...)
