"""Imports torchmetrics without scipy.signal and matplotlib, which take a second and half a second of CPU time in every process."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

SIGNAL = "scipy.signal"
PYPLOT = "matplotlib.pyplot"


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


class _Pyplot(ModuleType):
    """matplotlib.pyplot with the names that torchmetrics asks for when it is imported. To plot a metric loads the real module."""

    Figure = object

    def __getattr__(self, name: str) -> Any:
        if name in ("__file__", "__warningregistry__"):
            raise AttributeError(name)
        return getattr(import_module(PYPLOT), name)


class _AxesMeta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, import_module("matplotlib.axes").Axes)


class _Axes(metaclass=_AxesMeta):
    """The class of a plot's axes, for annotations and for `isinstance`."""


def _plot_with(style: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`style.context` of pyplot as a decorator, which loads pyplot when the decorated function is called."""

    def decorate(plot: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(plot)
        def plot_in_context(*arguments: Any, **settings: Any) -> Any:
            with import_module(PYPLOT).style.context(style):
                return plot(*arguments, **settings)

        return plot_in_context

    return decorate


@contextmanager
def postponed_matplotlib() -> Iterator[None]:
    """Replace matplotlib meanwhile. torchmetrics imports it for annotations, and for methods by which its metrics plot themselves."""
    if "matplotlib" in sys.modules:
        yield
        return
    package, axes, pyplot = ModuleType("matplotlib"), ModuleType("matplotlib.axes"), _Pyplot(PYPLOT)
    vars(axes)["Axes"] = _Axes
    vars(package).update(axes=axes, pyplot=pyplot, colors=SimpleNamespace(Colormap=object))
    vars(pyplot)["style"] = SimpleNamespace(context=_plot_with)
    stand_ins = {module.__name__: module for module in (package, axes, pyplot)}
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name in stand_ins:
            del sys.modules[name]


with skipped_scipy_signal(), postponed_matplotlib():
    import torchmetrics  # noqa: F401
