"""What a config names by import path, `module:Class`, beside what is built in."""

from collections.abc import Collection
from importlib import import_module
from typing import TypeVar

from pydantic import BaseModel

from pipelines.config.did_you_mean import near

_OWNERS = {"kind": "a task's", "encoder": "an encoder's", "format": "a raw table's"}
Settings = TypeVar("Settings", bound=BaseModel)
Found = TypeVar("Found")


def imported(path: str, base: type[Found], what: str = "a part") -> type[Found]:
    """The class that `module:Class` names. Raises ValueError if it cannot be imported, or is not derived from `base`.

    `what` the class should be words the error.
    """
    module, _, name = path.partition(":")
    try:
        found = getattr(import_module(module), name)
    except Exception as error:  # a module of one's own may raise anything
        raise ValueError(f"{path!r} cannot be imported: {_told(error)}") from error
    if not (isinstance(found, type) and issubclass(found, base)):
        place = f"{'pipelines.config' if base.__module__.startswith('pipelines.config.') else base.__module__}.{base.__name__}"
        raise ValueError(f"{path!r} is not {what}; it must name a class derived from {place}")
    return found


def is_path(name: str) -> bool:
    """Whether a name is written as `module:Class`."""
    module, _, inner = name.partition(":")
    return bool(inner) and all(part.isidentifier() for part in module.split("."))


def own_settings(path: str, base: type[Settings], key: str, known: Collection[str]) -> type[Settings]:
    """The settings class that an import path names; the `key` it stands at, and the `known` names beside it, word the errors.

    Raises ValueError if it is no import path, or not that of a class derived from `base`.
    """
    if not is_path(path):
        rule = f"it must be one of {', '.join(known)}, or module:Class of your own settings"
        raise ValueError(f"no {key} {path!r}; {near(path, known, rule)}")
    found = imported(path, base, f"{_OWNERS[key]} settings")
    if not hasattr(found, "implementation"):
        raise ValueError(f'{path!r} does not say what it configures; give it `implementation: ClassVar[str] = "module:Class"`')
    return found


def _told(error: Exception) -> str:
    """What an import raised, with the remedy, in a line."""
    said = " ".join(str(error).split())
    if isinstance(error, ImportError):
        return f"{said}; install it, or start in the folder that has it"
    if isinstance(error, AttributeError):
        return f"{said}; correct the name, or the module"
    return f"{type(error).__name__}: {said}; correct the module"
