"""The value of a metric: a number, or the reason why it has none, such as `one class`. Both are JSON.

A metric that is not defined for its rows computes NaN, and gives the reason in a method `missing_reason() -> str`, which is empty
otherwise; see `metric_classes.Loss`. NaN of any other metric is not a number either.
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
class HasReason(Protocol):
    """A metric that gives the reason why it has no value."""

    def missing_reason(self) -> str:
        """Why the metric is not defined for the rows that it was given; empty if it is."""


def metric_values(metrics: MetricCollection) -> dict[str, Value]:
    """The value of each metric of a collection, by name."""
    reasons = {name: metric.missing_reason() for name, metric in metrics.items(copy_state=False) if isinstance(metric, HasReason)}
    return {name: reasons.get(name) or to_value(float(value)) for name, value in metrics.compute().items()}


def to_value(number: float) -> Value:
    return NOT_A_NUMBER if isnan(number) else number


def to_number(value: Value) -> float:
    """The number; NaN if there is none."""
    return float("nan") if isinstance(value, str) else value


def numbers_only(values: Mapping[str, Value]) -> dict[str, float]:
    """Leave out values that are no numbers."""
    return {name: value for name, value in values.items() if not isinstance(value, str)}


def missing_reasons(values: Mapping[str, Value]) -> dict[str, str]:
    """The reasons why values are missing, by name."""
    return {name: value for name, value in values.items() if isinstance(value, str)}


def format_value(value: Value, digits: int = 4) -> str:
    """A number with so many significant digits, or `undefined: one class`."""
    return f"undefined: {value}" if isinstance(value, str) else f"{value:.{digits}g}"
