"""The metrics of targets: what tasks choose epochs by, and what gates measure again from predictions.

A task of one's own may have any other metric of torchmetrics; its class then says in `higher_is_better` which direction is better.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Literal, Protocol, runtime_checkable

from torchmetrics import MetricCollection

Value = float | str
"""A number, or why there is none."""
Direction = Literal["min", "max"]
Predictions = Literal["", "two classes", "classes", "quantity"]
Monitor = tuple[str, Direction]
"""The metric that selects the best epoch, and whether lower or higher is better."""

NOT_A_NUMBER = "not a number"
"""The reason where a metric gives none: the model's output is NaN, mostly."""
NO_ROWS, ONE_CLASS = "no rows", "one class"


@runtime_checkable
class HasReason(Protocol):
    """A metric that gives the reason why it has no value."""

    def missing_reason(self) -> str:
        """Why the metric is not defined for the rows that it was given; empty if it is."""


def metric_values(metrics: MetricCollection) -> dict[str, Value]:
    reasons = {name: metric.missing_reason() for name, metric in metrics.items(copy_state=False) if isinstance(metric, HasReason)}
    return {name: reasons.get(name) or to_value(float(value)) for name, value in metrics.compute().items()}


def to_value(number: float) -> Value:
    return NOT_A_NUMBER if isnan(number) else number


def to_number(value: Value) -> float:
    return float("nan") if isinstance(value, str) else value


def numbers_only(values: Mapping[str, Value]) -> dict[str, float]:
    return {name: value for name, value in values.items() if not isinstance(value, str)}


def missing_reasons(values: Mapping[str, Value]) -> dict[str, str]:
    return {name: value for name, value in values.items() if isinstance(value, str)}


def format_value(value: Value, digits: int = 4) -> str:
    """A number with so many significant digits, or `undefined: one class`."""
    return f"undefined: {value}" if isinstance(value, str) else f"{value:.{digits}g}"


@dataclass(frozen=True)
class MetricEntry:
    name: str
    direction: Direction
    predictions: Predictions = ""
    """The predictions from which it can be computed again; empty for none."""

    @property
    def monitor(self) -> Monitor:
        return self.name, self.direction


METRICS = {
    entry.name: entry
    for entry in (
        MetricEntry("auc", "max", "two classes"),
        MetricEntry("accuracy", "max", predictions="classes"),
        MetricEntry("loss", "min", "classes"),
        MetricEntry("rmse", "min", "quantity"),
        MetricEntry("mae", "min", predictions="quantity"),
        MetricEntry("mse", "min", predictions="quantity"),
        MetricEntry("r2", "max"),
        MetricEntry("average_precision", "max"),
        MetricEntry("balanced_accuracy", "max"),
        MetricEntry("f1", "max"),
        MetricEntry("exact_match", "max"),
        MetricEntry("rank_error", "min"),
        MetricEntry("mape", "min"),
        MetricEntry("deviance", "min"),
        MetricEntry("pinball", "min"),
    )
}
"""By name."""


def prediction_metrics(predictions: Predictions) -> tuple[str, ...]:
    """Names of the metrics that follow from predictions of this kind."""
    kinds = {"two classes", "classes"} if predictions == "two classes" else {predictions} - {""}
    return tuple(entry.name for entry in METRICS.values() if entry.predictions in kinds)


def metric_names(names: Sequence[str]) -> list[str]:
    """The ends of metrics' names for classes or columns: with the characters that MLflow takes; numbers where two would be the same."""
    legal = [re.sub(r"[^\w :-]", "_", name) for name in names]
    return legal if len({name.casefold() for name in legal}) == len(legal) else list(map(str, range(len(legal))))
