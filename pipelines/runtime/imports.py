"""Imports libraries that are large."""

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import Thread

NO_PRELOAD = "LOCKSTEP_NO_PRELOAD"
"""Set in a process of a Ray of our own that runs no worker, and need not import what one needs."""


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


@contextmanager
def meanwhile(work: Callable[[], None]) -> Iterator[None]:
    """Within the block, do `work` in a thread, such as imports while the block waits for a process; at its end, wait for the thread.

    Raises the error of the work, unless the block raises. If it does, the thread goes on: an interrupted import cannot be repeated.
    """
    errors: list[Exception] = []

    def do() -> None:
        try:
            work()
        except Exception as error:  # raised in the caller's thread
            errors.append(error)

    thread = Thread(target=do, name="meanwhile", daemon=True)
    thread.start()
    yield
    thread.join()
    if errors:
        raise errors[0]
