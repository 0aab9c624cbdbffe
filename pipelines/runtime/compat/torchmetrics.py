"""Imports torchmetrics without packages that it loads for metrics and plots which the project does not use: matplotlib, scipy.signal and
transformers take two seconds of CPU time in every process.
"""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, cast

from lightning_utilities.core.imports import RequirementCache

from pipelines.runtime.compat import optional_replacement

SIGNAL = "scipy.signal"
_OPTIONAL = ("matplotlib", "torchvision", "transformers")


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
def without_scipy_signal() -> Iterator[None]:
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


def without_optional_packages() -> AbstractContextManager[None]:
    """Let torchmetrics find none of `_OPTIONAL` meanwhile, except what is loaded already: then it costs nothing.

    What needs one of them, such as `Metric.plot`, says later that it is missing.
    """
    check = getattr(RequirementCache, "_check_available", None)

    def check_available(self: RequirementCache) -> None:
        name = str(self.requirement or self.module)
        package = next((package for package in _OPTIONAL if name.startswith(package)), None)
        if package and package not in sys.modules:
            self.available, self.message = False, f"{package} was not loaded before pipelines.tasks"
        else:
            cast(Any, check)(self)

    instead = "torchmetrics imports matplotlib and transformers"
    return optional_replacement(RequirementCache, "_check_available", check_available, instead)


with without_scipy_signal(), without_optional_packages():
    import torchmetrics  # noqa: F401
