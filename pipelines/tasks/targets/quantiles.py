"""A target whose quantiles are predicted: how far down and how far up a value may be, for each row."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection

from pipelines.config import TaskSettings
from pipelines.tasks.data import Data
from pipelines.tasks.metrics.table import METRICS
from pipelines.tasks.targets.base import QuantityTarget
from pipelines.tasks.targets.quantile_levels import QuantileLevels, quantiles_in_order
from pipelines.tasks.trivial import ConstantFit, TrivialPredictor


class QuantileTarget(QuantityTarget):
    """One output for each of `task.quantiles`, with the pinball loss of `quantile_levels`, the mean over quantiles."""

    monitor = METRICS["pinball"].monitor
    is_curved = False

    def __init__(self, data: Data, settings: TaskSettings) -> None:
        super().__init__(data, settings)
        self._levels = QuantileLevels(settings.quantiles)
        self.outputs = len(settings.quantiles)

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        return self._levels.pinball(output, target.to(output.dtype))

    def usual_metrics(self) -> dict[str, Metric]:
        return {**self._levels.usual_metrics(), **super().usual_metrics()}

    def update(self, metrics: MetricCollection, output: Tensor, target: Tensor) -> None:
        super().update(metrics, output, target)
        self._levels.update(metrics, quantiles_in_order(self.data, output), self.raw(target))

    def trivial_predictors(self, row_weight: str, class_weights: Sequence[float]) -> list[TrivialPredictor]:
        """The quantiles of the training split, which for the loss are those of the weight."""
        column = self.data.target.name
        other_metrics = tuple(str(name) for name in self.metrics() if name not in ("loss", "coverage"))
        return [
            ConstantFit("quantiles", self._constant_output, column, other_metrics),
            ConstantFit("quantiles", self._constant_output, column, ("loss",), row_weight),
        ]

    def _constant_output(self, values: np.ndarray, weights: np.ndarray) -> Tensor:
        return torch.from_numpy(np.quantile(values, self._levels.shares, method="inverted_cdf", weights=weights))

    def output_to_explain(self, output: Tensor) -> Tensor:
        return torch.full((len(output),), self._levels.middle)

    def quantities(self, output: Tensor) -> Tensor:
        return quantiles_in_order(self.data, output)[:, self._levels.middle]

    def prediction_form(self) -> dict[str, Any]:
        return self._levels.prediction_form(self.data)
