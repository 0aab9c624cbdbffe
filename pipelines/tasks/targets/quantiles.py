"""A target whose quantiles are predicted: how far down and how far up a value may be, for each row."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection

from pipelines.config import TaskSettings
from pipelines.tasks.constants import Constant
from pipelines.tasks.data import Data
from pipelines.tasks.metrics.accumulation import Loss
from pipelines.tasks.metrics.table import METRICS
from pipelines.tasks.targets.base import QuantityTarget
from pipelines.tasks.trivial import ConstantFit, TrivialPredictor


class QuantileTarget(QuantityTarget):
    """One output for each of `task.quantiles`, with the pinball loss (Koenker and Bassett 1978), the mean over quantiles.

    Predictions are sorted, so that no quantile is below a lower one, which lowers no pinball loss's chance (Chernozhukov, Fernández-Val and
    Galichon 2010, "Quantile and probability curves without crossing"). The prediction that stands for the value is the quantile nearest to
    the median."""

    monitor = METRICS["pinball"].monitor
    is_curved = False

    def __init__(self, data: Data, settings: TaskSettings) -> None:
        super().__init__(data, settings)
        self._quantiles = settings.quantiles
        self._levels = Constant(torch.tensor(settings.quantiles, dtype=torch.float64))
        self._middle = min(range(len(self._quantiles)), key=lambda place: abs(self._quantiles[place] - 0.5))
        self.outputs = len(self._quantiles)

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        return self._pinball(output, target.to(output.dtype))

    def _pinball(self, predicted: Tensor, true: Tensor) -> Tensor:
        """The mean over quantiles, shape (rows,), from shapes (rows, quantiles) and (rows,)."""
        above, levels = true.unsqueeze(1) - predicted, self._levels.to(predicted.device, predicted.dtype)
        return torch.maximum(levels * above, (levels - 1) * above).mean(1)

    def usual_metrics(self) -> dict[str, Metric]:
        coverage = {} if len(self._quantiles) == 1 else {"coverage": Coverage()}
        return {"pinball": Loss("no rows"), **coverage, **super().usual_metrics()}

    def update(self, metrics: MetricCollection, output: Tensor, target: Tensor) -> None:
        super().update(metrics, output, target)
        predicted, true = self._raw_quantiles(output), self.raw(target)
        metrics["pinball"].update(self._pinball(predicted, true))
        if "coverage" in metrics:
            metrics["coverage"].update(((predicted[:, 0] <= true) & (true <= predicted[:, -1])).double())

    def trivial_predictors(self, row_weight: str, class_weights: Sequence[float]) -> list[TrivialPredictor]:
        """The quantiles of the training split, which for the loss are those of the weight."""
        column = self.data.target.name
        other_metrics = tuple(str(name) for name in self.metrics() if name not in ("loss", "coverage"))
        return [
            ConstantFit("quantiles", self._constant_output, column, other_metrics),
            ConstantFit("quantiles", self._constant_output, column, ("loss",), row_weight),
        ]

    def _constant_output(self, values: np.ndarray, weights: np.ndarray) -> Tensor:
        return torch.from_numpy(np.quantile(values, self._quantiles, method="inverted_cdf", weights=weights))

    def output_to_explain(self, output: Tensor) -> Tensor:
        return torch.full((len(output),), self._middle)

    def quantities(self, output: Tensor) -> Tensor:
        return self._raw_quantiles(output)[:, self._middle]

    def predict(self, output: Tensor) -> dict[str, Sequence]:
        predicted = self._raw_quantiles(output)
        by_level = {f"quantile_{level}": predicted[:, place].tolist() for place, level in enumerate(self._quantiles)}
        return {"prediction": predicted[:, self._middle].tolist(), **by_level}

    def prediction_form(self) -> dict[str, Any]:
        return {**self.data.quantity_form("quantiles"), "quantiles": list(self._quantiles), "middle": self._middle}

    def _raw_quantiles(self, output: Tensor) -> Tensor:
        """Shape (rows, quantiles), ascending, in the units of the query: no encoder of a quantity changes the order of values."""
        return self.raw(output.sort(1).values)


class Coverage(Loss):
    """The share of values between the lowest and the highest quantile. Neither more nor less is better than what they say."""

    higher_is_better = None  # type: ignore[assignment]
