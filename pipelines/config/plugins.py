"""Imports classes that a config names by import path, `module:Class`, in place of a built-in name."""

from importlib import import_module
from typing import TypeVar

from pydantic import BaseModel

from pipelines.config.messages.validation_errors import show_value

Settings = TypeVar("Settings", bound=BaseModel)
Class = TypeVar("Class")


def import_class(path: str, base: type[Class], description: str = "a part") -> type[Class]:
    """The class that `module:Class` names. `description` stands in error messages.

    Raises ValueError if it cannot be imported or is not derived from `base`.
    """
    module, _, name = path.partition(":")
    try:
        loaded = getattr(import_module(module), name)
    except Exception as error:  # a user's module may raise anything
        raise ValueError(f"{show_value(path)!r} cannot be imported: {describe_import_error(error)}") from error
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        place = f"{'pipelines.config' if base.__module__.startswith('pipelines.config.') else base.__module__}.{base.__name__}"
        raise ValueError(f"{show_value(path)!r} is not {description}; it must name a class derived from {place}")
    return loaded


def is_class_path(name: str) -> bool:
    """Whether a name has the form `module:Class`."""
    module, _, inner = name.partition(":")
    return bool(inner) and all(part.isidentifier() for part in module.split("."))


def import_settings(path: str, base: type[Settings], description: str) -> type[Settings]:
    """The settings class that an import path names. Raises ValueError if it is not derived from `base`, or names no implementation."""
    settings = import_class(path, base, description)
    if not hasattr(settings, "implementation"):
        raise ValueError(f'{show_value(path)!r} has no implementation; set `implementation: ClassVar[str] = "module:Class"` in the class')
    return settings


def describe_import_error(error: Exception) -> str:
    """The error of an import and its remedy, in one line."""
    message = " ".join(str(error).split())
    if isinstance(error, ImportError):
        return f"{message}; install it, or start in the folder that contains it"
    if isinstance(error, AttributeError):
        return f"{message}; correct the name or the module"
    return f"{type(error).__name__}: {message}; correct the module"
