"""The value of a metric: a number, or the reason why it has none, such as `one class`. Both are JSON.

A metric that is not defined for its rows computes NaN, and gives the reason in a method `undefined() -> str`, which is empty
otherwise; see `means.Loss`. NaN of any other metric is not a number either.
"""

from collections.abc import Mapping
from math import isnan
from typing import Protocol, runtime_checkable

from torchmetrics import MetricCollection

Value = float | str
"""A number, or why there is none."""

NOT_A_NUMBER = "not a number"
"""The reason where a metric gives none: the model's output is NaN, mostly."""
NO_ROWS, ONE_CLASS = "no rows", "one class"


@runtime_checkable
class SaysWhy(Protocol):
    """A metric that knows when it has no value."""

    def undefined(self) -> str:
        """Why the metric is not defined for the rows that it was given; empty if it is."""


def values_of(metrics: MetricCollection) -> dict[str, Value]:
    """The value of each metric of a collection, by name."""
    reasons = {name: metric.undefined() for name, metric in metrics.items(copy_state=False) if isinstance(metric, SaysWhy)}
    return {name: reasons.get(name) or value_of(float(value)) for name, value in metrics.compute().items()}


def value_of(number: float) -> Value:
    return NOT_A_NUMBER if isnan(number) else number


def number_of(value: Value) -> float:
    """The number; NaN if there is none."""
    return float("nan") if isinstance(value, str) else value


def defined(values: Mapping[str, Value]) -> dict[str, float]:
    """Those that are numbers."""
    return {name: value for name, value in values.items() if not isinstance(value, str)}


def reasons_of(values: Mapping[str, Value]) -> dict[str, str]:
    """The reasons of those that are not defined."""
    return {name: value for name, value in values.items() if isinstance(value, str)}


def in_words(value: Value, digits: int = 4) -> str:
    """A number with so many significant digits, or `undefined: one class`."""
    return f"undefined: {value}" if isinstance(value, str) else f"{value:.{digits}g}"
