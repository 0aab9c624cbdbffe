"""Imports torchmetrics without scipy.signal, which takes a second of CPU time in every process."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

SIGNAL = "scipy.signal"


@contextmanager
def _signal_left_out() -> Iterator[None]:
    """Put a stand-in in the place of scipy.signal meanwhile; a later import loads the real module.

    torchmetrics imports it only to restore `hamming`, a name that SciPy has removed, for another package. This is needed until
    torchmetrics does so only where its audio metrics are imported.
    """
    if SIGNAL in sys.modules:
        yield
        return
    stand_in = ModuleType(SIGNAL)
    stand_in.__dict__["hamming"] = None
    sys.modules[SIGNAL] = stand_in
    try:
        yield
    finally:
        del sys.modules[SIGNAL]


with _signal_left_out():
    import torchmetrics  # noqa: F401
