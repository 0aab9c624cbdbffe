"""Marks the functions in which a worker waits for others, so that its heartbeat distinguishes waiting from work."""

from collections.abc import Callable
from typing import TypeVar

Function = TypeVar("Function", bound=Callable[..., object])

WAITING_FUNCTIONS = set[tuple[str, str]]()
"""File and name of each, as in a stack."""


def waits_for_workers(function: Function) -> Function:
    """Decorate a function that returns only after other workers have sent or received."""
    code = function.__code__
    WAITING_FUNCTIONS.add((code.co_filename, code.co_name))
    return function
