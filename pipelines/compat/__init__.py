"""What this project needs of libraries' own names, which no release promises to keep. Nothing else touches them.

1. `ray`  listens on loopback alone, and keeps from Ray Train what only costs.

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


def replace(owner: Any, name: str, value: Any) -> Any:
    """Give a library's name another value, and return the one before. Raises MismatchError if there is no such name."""
    present(owner, name)
    before = getattr(owner, name)
    setattr(owner, name, value)
    return before
