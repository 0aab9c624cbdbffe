"""What this project needs of libraries' own names, which no release promises to keep. Nothing else touches them.

1. `ray`    listens on loopback alone, and keeps from Ray Train what only costs.
2. `spark`  the Java objects behind a session and its data frames.
3. `torch`  the base of all batch norms, and a product over many tensors.

Setting a name that is gone does nothing, and overriding one does nothing either: here both raise.
"""

from typing import Any

from pipelines.errors import MismatchError


def present(owner: Any, *names: str) -> None:
    """Raise MismatchError unless a library's module or class has all the names."""
    library = getattr(owner, "__module__", owner.__name__).partition(".")[0]
    for name in names:
        if not hasattr(owner, name):
            raise MismatchError(f"{owner.__name__}.{name} is gone from this version of {library}; install the one in constraints.txt")


def attribute(instance: Any, name: str) -> Any:
    """An attribute that a library's object has for itself. Raises MismatchError if there is none."""
    if not hasattr(instance, name):
        present(type(instance), name)
    return getattr(instance, name)


def replace(owner: Any, name: str, value: Any) -> Any:
    """Give a library's name another value, and return the one before. Raises MismatchError if there is no such name."""
    present(owner, name)
    before = getattr(owner, name)
    setattr(owner, name, value)
    return before
