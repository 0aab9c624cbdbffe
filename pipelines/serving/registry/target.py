"""The target of a comparison: the true values of test rows, and the metric of a model's predictions of them."""

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
from pipelines.serving.registry.scores import Metric, class_metric, quantity_metric
from pipelines.tasks.bind import build_task
from pipelines.tasks.metrics import METRICS, prediction_metrics
from pipelines.tasks.supervised import Supervised
from pipelines.tasks.values import NOT_A_NUMBER, ONE_CLASS, Value

WITHOUT_ROWS = "registry.compare to false, registry.slices to [] and registry.latency_ms to null"
"""The settings that leave out every gate that needs rows."""


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
        classes = task.data.classes or tuple(map(str, range(manifest.target.cardinality or 0)))
        metrics = prediction_metrics(classes)
    metric = config.registry.metric or task.monitor[0]
    if metric not in metrics:
        choice = f", or choose {', '.join(metrics)}" if metrics else ""
        raise ConfigError(f"registry.metric: {metric} cannot be computed from a row's prediction; set {WITHOUT_ROWS}{choice}")
    return ComparisonTarget(metric, manifest.encoders[manifest.target.name].inputs[0], manifest, classes)
