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


class QuantileLevels:
    """The shares of values that are below each prediction, ascending. Predictions have shape (rows, quantiles, …), true values (rows, …).

    Predictions are sorted, so that no quantile is below a lower one, which lowers no pinball loss's chance (Chernozhukov, Fernández-Val and
    Galichon 2010, "Quantile and probability curves without crossing"). The prediction that stands for the value is the quantile nearest to
    the median, number `middle`."""

    def __init__(self, shares: Sequence[float]) -> None:
        self.shares = tuple(shares)
        self.middle = min(range(len(shares)), key=lambda place: abs(shares[place] - 0.5))
        self._constant = Constant(torch.tensor(shares, dtype=torch.float64))

    def pinball(self, predicted: Tensor, true: Tensor) -> Tensor:
        """The pinball loss of each value (Koenker and Bassett 1978), the mean over quantiles, shape (rows, …)."""
        levels = self._constant.to(predicted.device, predicted.dtype).view(-1, *[1] * (true.dim() - 1))
        above = true.unsqueeze(1) - predicted
        return torch.maximum(levels * above, (levels - 1) * above).mean(1)

    def usual_metrics(self) -> dict[str, Loss]:
        """New metrics: `pinball`, and with several quantiles `coverage`."""
        coverage = {} if len(self.shares) == 1 else {"coverage": Coverage()}
        return {"pinball": Loss("no rows"), **coverage}

    def update(self, metrics: Any, predicted: Tensor, true: Tensor) -> None:
        """Add rows, given their sorted predictions, to the metrics of `usual_metrics`."""
        metrics["pinball"].update(self.pinball(predicted, true))
        if "coverage" in metrics:
            metrics["coverage"].update(((predicted[:, 0] <= true) & (true <= predicted[:, -1])).double())

    def prediction_form(self, data: Data) -> dict[str, Any]:
        """As `Task.prediction_form`, of predictions of the target of `data`."""
        return {**data.form_to_decode("quantiles"), "quantiles": list(self.shares), "middle": self.middle}


class Coverage(Loss):
    """The share of values between the lowest and the highest quantile. Neither more nor less is better than what they say."""

    higher_is_better = None  # type: ignore[assignment]


def quantiles_in_order(data: Data, output: Tensor) -> Tensor:
    """Outputs of shape (rows, quantiles, …), ascending, in the units of the query: no encoder of a quantity changes the order of values."""
    return torch.from_numpy(np.asarray(data.decode(output.sort(1).values.double().numpy()), dtype=np.float64))


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
