"""The target of a comparison: the true values of test rows, and the metric of a model's predictions of them.

Two models are compared by a paired bootstrap. It draws as many rows as there are, with replacement; a row that is drawn k times has the
weight k in both models' metrics (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 16).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipelines.config import Config
from pipelines.data.features import Encoders
from pipelines.data.features.raw import numbers
from pipelines.data.versions.manifest import Manifest
from pipelines.data.versions.schema import to_numpy
from pipelines.errors import ConfigError
from pipelines.ranking import roc_area
from pipelines.tasks.bind import build_task
from pipelines.tasks.metrics.table import METRICS, NOT_A_NUMBER, ONE_CLASS, Value, prediction_metrics
from pipelines.tasks.supervised import Supervised

WITHOUT_ROWS = "registry.compare to false, registry.slices to [] and registry.latency_ms to null"
"""The settings that leave out every gate that needs rows."""
Floats = NDArray[np.float64]
Metric = Callable[[Floats], float]
"""A metric of rows as a function of their weights, float64 of shape (rows,)."""


def class_metric(name: str, truth: NDArray[np.int64], probabilities: Floats) -> Metric:
    """`auc` (of two classes) or `loss` of rows with these classes, shape (rows,), and predicted probabilities, shape (rows, classes)."""
    if name == "auc":
        _, place = np.unique(probabilities[:, 1], return_inverse=True)
        second, first = truth == 1, truth != 1

        def area(weights: Floats) -> float:
            """NaN without rows of both classes."""
            return roc_area(*(np.bincount(place, weights * is_of_class)[::-1] for is_of_class in (second, first)))

        return area
    chosen = probabilities[np.arange(len(truth)), truth]
    # A probability of 0 may be any below the spacing of numbers at 1: of two classes, one is computed as 1 minus the other.
    return _mean(-np.log(np.maximum(chosen, np.finfo(np.float64).eps)))


def quantity_metric(name: str, truth: Floats, predicted: Floats) -> Metric:
    """`rmse`, `mae` or `mse` of rows with these values and predictions, shape (rows,)."""
    if name == "mae":
        return _mean(np.abs(predicted - truth))
    mse = _mean((predicted - truth) ** 2)
    return mse if name == "mse" else lambda weights: mse(weights) ** 0.5


def _mean(values: Floats) -> Metric:
    return lambda weights: float(values @ weights / weights.sum())


@dataclass(frozen=True)
class BootstrapComparison:
    candidate: float
    champion: float
    lower: float
    """Bound of the difference: with the required confidence the candidate is better by at least this, which may be negative."""


def bootstrap_comparison(
    candidate: Metric, champion: Metric, is_higher_better: bool, rows: int, confidence: float, resamples: int, seed: int
) -> BootstrapComparison:
    """Compare two models' metrics of the same rows."""
    random, sign = np.random.default_rng(seed), 1.0 if is_higher_better else -1.0
    differences = np.empty(resamples)
    for number in range(resamples):
        weights = np.bincount(random.integers(0, rows, rows), minlength=rows).astype(np.float64)
        differences[number] = sign * (candidate(weights) - champion(weights))
    ones = np.ones(rows)
    # A sample of a small split may have rows of one class only, for which the AUC is not defined.
    return BootstrapComparison(candidate(ones), champion(ones), float(np.nanquantile(differences, 1 - confidence)))


@dataclass(frozen=True)
class ComparisonTarget:
    """A column that models predict, and the metric that compares them."""

    metric: str
    column: str
    """Name in the query."""
    manifest: Manifest
    classes: tuple[str, ...]
    """Empty for a quantity."""

    @property
    def is_higher_better(self) -> bool:
        return METRICS[self.metric].direction == "max"

    @property
    def skew(self) -> "ComparisonTarget":
        """This target with the metric that the model must reproduce from raw rows. For classes it is the accuracy, not the loss: a
        probability cannot express how far beyond 1 - 1e-16 an output is."""
        return replace(self, metric="accuracy") if self.classes else self

    def truth(self, rows: pa.Table) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """The number of the class, or the value in the query's units, of each row, and whether it is known."""
        if not self.classes:
            values = numbers(rows[self.column].combine_chunks())
            return values, np.isfinite(values)
        name = self.manifest.target.name
        encoded, reasons = Encoders({name: self.manifest.encoders[name]}).encode(rows)
        is_known = reasons.is_null().to_numpy(zero_copy_only=False)
        classes = np.zeros(len(rows), np.int64)
        classes[is_known] = to_numpy(self.manifest.encoders[name].column, encoded.column(0).combine_chunks())
        return classes, is_known

    def metric_by_weights(self, truth: NDArray[Any], predictions: pa.Table) -> Metric:
        if not self.classes:
            return quantity_metric(self.metric, truth, predictions["prediction"].to_numpy())
        if self.metric == "accuracy":  # of what the model decided, which need not be the most probable class
            names_of_classes = np.array(self.classes, object)[truth]
            return _mean((names_of_classes == np.array(predictions["prediction"].to_pylist(), object)).astype(np.float64))
        # A class that a model does not know has the probability 0.
        names = [f"probability_{name}" for name in self.classes]
        columns = [predictions[name].to_numpy() if name in predictions.column_names else np.zeros(len(truth)) for name in names]
        return class_metric(self.metric, truth, np.stack(columns, axis=1))

    def value(self, truth: NDArray[Any], predictions: pa.Table) -> Value:
        """The metric of all these rows, or why it has none: only the AUC needs more than a row."""
        number = self.metric_by_weights(truth, predictions)(np.ones(len(truth)))
        return number if not np.isnan(number) else ONE_CLASS if self.metric == "auc" else NOT_A_NUMBER


def find_target(config: Config, manifest: Manifest) -> ComparisonTarget:
    """Raises ConfigError if the metric cannot be computed from the predictions of rows."""
    task = build_task(config.task, manifest)
    classes: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    if isinstance(task, Supervised):
        classes = task.target.classes
        metrics = prediction_metrics(task.target.predictions)
    metric = config.registry.metric or task.monitor[0]
    if metric not in metrics:
        choice = f", or choose {', '.join(metrics)}" if metrics else ""
        raise ConfigError(f"registry.metric: {metric} cannot be computed from a row's prediction; set {WITHOUT_ROWS}{choice}")
    return ComparisonTarget(metric, manifest.encoders[manifest.target.name].inputs[0], manifest, classes)
