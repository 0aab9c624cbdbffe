"""Imports libraries that are large."""

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module


def import_modules(modules: Iterable[str]) -> None:
    """Import the modules, with all that they need."""
    with paused_collection():
        for module in modules:
            import_module(module)


@contextmanager
def paused_collection() -> Iterator[None]:
    """Within the block, Python does not look for garbage. torch, Ray and MLflow make a million objects when they are imported, and no
    garbage; to look through them again and again takes a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
