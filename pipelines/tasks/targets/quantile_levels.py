"""The quantiles of `task.quantiles`: their loss, their order and their names, for one value per row or for arrays of values."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipelines.tasks.constants import Constant
from pipelines.tasks.data import Data
from pipelines.tasks.metrics.accumulation import Loss


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
