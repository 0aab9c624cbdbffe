"""Imports classes that a config names by import path, `module:Class`, in place of a built-in name."""

from collections.abc import Collection
from importlib import import_module
from typing import TypeVar

from pydantic import BaseModel

from pipelines.config.did_you_mean import suggestion
from pipelines.config.section import shown

_OWNERS = {"kind": "a task's", "encoder": "an encoder's", "format": "a raw table's"}
Settings = TypeVar("Settings", bound=BaseModel)
Found = TypeVar("Found")


def imported(path: str, base: type[Found], what: str = "a part") -> type[Found]:
    """The class that `module:Class` names. `what` describes the expected class in error messages.

    Raises ValueError if it cannot be imported or is not derived from `base`.
    """
    module, _, name = path.partition(":")
    try:
        found = getattr(import_module(module), name)
    except Exception as error:  # a user's module may raise anything
        raise ValueError(f"{shown(path)!r} cannot be imported: {_described(error)}") from error
    if not (isinstance(found, type) and issubclass(found, base)):
        place = f"{'pipelines.config' if base.__module__.startswith('pipelines.config.') else base.__module__}.{base.__name__}"
        raise ValueError(f"{shown(path)!r} is not {what}; it must name a class derived from {place}")
    return found


def is_path(name: str) -> bool:
    """Whether a name has the form `module:Class`."""
    module, _, inner = name.partition(":")
    return bool(inner) and all(part.isidentifier() for part in module.split("."))


def own_settings(path: str, base: type[Settings], key: str, known: Collection[str]) -> type[Settings]:
    """The settings class that an import path names. `key` and the `known` built-in names are used only in error messages.

    Raises ValueError if `path` is not an import path, or does not name a class derived from `base`.
    """
    if not is_path(path):
        rule = f"it must be one of {', '.join(known)}, or module:Class of your own settings"
        raise ValueError(f"no {key} {shown(path)!r}; {suggestion(path, known, rule)}")
    return settings_at(path, base, f"{_OWNERS[key]} settings")


def settings_at(path: str, base: type[Settings], what: str) -> type[Settings]:
    """The settings class that an import path names. Raises ValueError if it is not derived from `base`, or names no implementation."""
    found = imported(path, base, what)
    if not hasattr(found, "implementation"):
        raise ValueError(f'{shown(path)!r} has no implementation; set `implementation: ClassVar[str] = "module:Class"` in the class')
    return found


def _described(error: Exception) -> str:
    """The error of an import and its remedy, in one line."""
    said = " ".join(str(error).split())
    if isinstance(error, ImportError):
        return f"{said}; install it, or start in the folder that contains it"
    if isinstance(error, AttributeError):
        return f"{said}; correct the name or the module"
    return f"{type(error).__name__}: {said}; correct the module"
