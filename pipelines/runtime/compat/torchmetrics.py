"""Imports torchmetrics without scipy.signal, which takes a second of CPU time in every process."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

SIGNAL = "scipy.signal"


class _StandIn(ModuleType):
    """scipy.signal with the one name that torchmetrics asks for. Another name, which other packages ask for, loads the real module."""

    hamming = None

    def __getattr__(self, name: str) -> Any:
        if name in ("__file__", "__warningregistry__"):  # asked of every module, by those that search them
            raise AttributeError(name)
        _remove(self)
        return getattr(import_module(SIGNAL), name)


def _remove(stand_in: ModuleType) -> None:
    if sys.modules.get(SIGNAL) is stand_in:
        del sys.modules[SIGNAL]


@contextmanager
def skipped_scipy_signal() -> Iterator[None]:
    """Replace scipy.signal meanwhile; a later import loads the real module.

    torchmetrics imports it only to restore `hamming`, a name that SciPy has removed, for another package. This is needed until
    torchmetrics does so only where its audio metrics are imported.
    """
    if SIGNAL in sys.modules:
        yield
        return
    stand_in = sys.modules[SIGNAL] = _StandIn(SIGNAL)
    try:
        yield
    finally:
        _remove(stand_in)


with skipped_scipy_signal():
    import torchmetrics  # noqa: F401
