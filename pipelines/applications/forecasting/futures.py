"""The target of a forecast, shape (horizon, series) per row, as one value at each step or as quantiles of it: its losses and metrics.

Metrics are in encoded units, in which published results are given.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torchmetrics import MeanAbsoluteError, MeanSquaredError, Metric, MetricCollection

from pipelines.tasks.data import Data
from pipelines.tasks.metrics.accumulation import Loss
from pipelines.tasks.metrics.table import METRICS, Monitor
from pipelines.tasks.targets.distributions import QuantileLevels


class Future:
    """One value at each step, with the squared error. Outputs of the model have shape (rows, horizon, series)."""

    monitor: Monitor = METRICS["mse"].monitor
    minimised: str = "mse"
    quantiles: int = 0
    """Quantiles of an output, on its second axis; without any it has no such axis."""

    def __init__(self, data: Data) -> None:
        self.data = data

    def losses(self, output: Tensor, true: Tensor) -> Tensor:
        """Loss of each row, shape (rows,), in encoded units."""
        return (output - true).square().flatten(1).mean(1)

    def usual_metrics(self) -> dict[str, Metric]:
        return {"mse": MeanSquaredError(), "mae": MeanAbsoluteError()}

    def update(self, metrics: MetricCollection, output: Tensor, true: Tensor) -> None:
        """Add rows, given their float64 output and target on the CPU, to the metrics of `usual_metrics`."""
        for name in ("mse", "mae"):
            metrics[name].update(self.forecast(output).reshape(-1), true.reshape(-1))

    def order_quantiles(self, output: Tensor) -> Tensor:
        """Outputs as they are predicted: with quantiles in ascending order."""
        return output

    def forecast(self, output: Tensor) -> Tensor:
        """The forecast that stands for the value, shape (rows, horizon, series), as encoded."""
        return output

    def bounds(self, output: Tensor) -> dict[str, Tensor]:
        """`low` and `high`, shapes as those of a forecast, as encoded: the outermost quantiles. Empty if there are not two."""
        return {}

    def prediction_form(self) -> dict[str, Any]:
        return self.data.form_to_decode("array")


class FutureQuantiles(Future):
    """The quantiles of `task.quantiles` at each step, with the pinball loss.

    Outputs have shape (rows, quantiles, horizon, series). The forecast is the quantile nearest to the median."""

    monitor = METRICS["pinball"].monitor
    minimised = "loss"

    def __init__(self, data: Data, shares: Sequence[float]) -> None:
        super().__init__(data)
        self._levels = QuantileLevels(shares)
        self.quantiles = len(shares)

    def losses(self, output: Tensor, true: Tensor) -> Tensor:
        return self._levels.pinball(output, true).flatten(1).mean(1)

    def usual_metrics(self) -> dict[str, Metric]:
        """`pinball` is of the quantiles as they are predicted, in ascending order, and `loss` of the outputs as they are."""
        return {**self._levels.usual_metrics(), **super().usual_metrics(), "loss": Loss("no rows")}

    def update(self, metrics: MetricCollection, output: Tensor, true: Tensor) -> None:
        super().update(metrics, output, true)
        self._levels.update(metrics, self.order_quantiles(output), true)
        metrics["loss"].update(self.losses(output, true))

    def order_quantiles(self, output: Tensor) -> Tensor:
        return output.sort(1).values

    def forecast(self, output: Tensor) -> Tensor:
        return self.order_quantiles(output)[:, self._levels.middle]

    def bounds(self, output: Tensor) -> dict[str, Tensor]:
        ascending = self.order_quantiles(output)
        return {"low": ascending[:, 0], "high": ascending[:, -1]} if self.quantiles > 1 else {}

    def prediction_form(self) -> dict[str, Any]:
        return self._levels.prediction_form(self.data)
