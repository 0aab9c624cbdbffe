"""Targets of which more than a mean is predicted: counts, whose spread grows with their mean (Poisson and negative binomial, with exact
negative log-likelihoods in nats), and quantiles, which say how far down and how far up a value may be.
"""

from collections.abc import Sequence
from math import log
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import NegativeBinomial
from torchmetrics import Metric, MetricCollection

from pipelines.config import TaskSettings
from pipelines.tasks.data import Constant, Data
from pipelines.tasks.metrics.accumulation import Loss
from pipelines.tasks.metrics.table import METRICS
from pipelines.tasks.targets.base import QuantityTarget, log_mean_of_models, mean_by_weight, mean_of_models
from pipelines.tasks.trivial import ConstantFit, TrivialPredictor

LARGEST_LOG_DISPERSION = 12.0
"""Beyond e^±12 the distribution is a Poisson one, or all but 0, to the precision of floats."""


class PoissonTarget(QuantityTarget):
    """One output: the logarithm of the mean, relative to that of the training split (McCullagh and Nelder 1989, chapter 6).

    `deviance` is twice the difference of the log-likelihood from that of a perfect mean, per row."""

    monitor = METRICS["deviance"].monitor

    def __init__(self, data: Data, settings: TaskSettings | None = None) -> None:
        super().__init__(data, settings)
        fitted = data.encoders.get(data.target.name)
        self._log_mean = log(fitted.state["mean"]) if fitted else 0.0

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        target, log_mean = target.to(output.dtype), output[:, 0] + self._log_mean
        return log_mean.exp() - target * log_mean + (target + 1).lgamma()

    def average(self, outputs: Tensor, shares: Tensor | None = None) -> Tensor:
        return log_mean_of_models(outputs, shares)

    def usual_metrics(self) -> dict[str, Metric]:
        return {**super().usual_metrics(), "deviance": Loss("no rows")}

    def update(self, metrics: MetricCollection, output: Tensor, target: Tensor) -> None:
        super().update(metrics, output, target)
        log_mean, true = output[:, 0] + self._log_mean, target.double()
        metrics["deviance"].update(2 * (true.xlogy(true) - true * log_mean - true + log_mean.exp()))

    def trivial_predictors(self, row_weight: str, class_weights: Sequence[float]) -> list[TrivialPredictor]:
        """The mean, which for the loss is that of the weight, and for the absolute error the median."""

        def median_output(counts: np.ndarray, weights: np.ndarray) -> Tensor:
            median = max(float(np.median(counts)), 0.5)  # no logarithm is −∞
            return self.constant_output(np.full(1, median), np.ones(1))

        column, absolute = self.data.target.name, ("mae", "mape")
        return [
            ConstantFit("mean", self.constant_output, column, self.metrics_besides("loss", *absolute)),
            ConstantFit("mean", self.constant_output, column, ("loss",), row_weight),
            ConstantFit("median", median_output, column, absolute),
        ]

    def constant_output(self, counts: np.ndarray, weights: np.ndarray) -> Tensor:
        """The output, shape (outputs,), of the best constant prediction of these counts."""
        return mean_by_weight(counts, weights).log() - self._log_mean

    def quantities(self, output: Tensor) -> Tensor:
        return (output[:, 0] + self._log_mean).exp()

    def prediction_form(self) -> dict[str, Any]:
        return {"form": "counts", "log_mean": self._log_mean}


class NegativeBinomialTarget(PoissonTarget):
    """Two outputs: the mean as above, and the logarithm of the dispersion α, with which the variance is mean + α · mean² (NB2: Cameron and
    Trivedi, Regression Analysis of Count Data, 2013, section 3.3). Each row has an α of its own."""

    outputs = 2
    monitor = METRICS["loss"].monitor

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        wide = output.double()  # log-gammas of 1 / α are large, and their difference small
        log_count = -wide[:, 1].clamp(-LARGEST_LOG_DISPERSION, LARGEST_LOG_DISPERSION)
        log_mean = wide[:, 0] + self._log_mean
        distribution = NegativeBinomial(log_count.exp(), logits=log_mean - log_count, validate_args=False)
        return -distribution.log_prob(target.double()).to(output.dtype)

    def average(self, outputs: Tensor, shares: Tensor | None = None) -> Tensor:
        return torch.stack([super().average(outputs, shares)[:, 0], mean_of_models(outputs, shares)[:, 1]], 1)

    def constant_output(self, counts: np.ndarray, weights: np.ndarray) -> Tensor:
        """The dispersion is that of the moments: (variance − mean) / mean²."""
        mean = np.average(counts, weights=weights)
        dispersion = (np.average((counts - mean) ** 2, weights=weights) - mean) / mean**2
        log_dispersion = np.log(max(dispersion, np.exp(-LARGEST_LOG_DISPERSION)))
        return torch.cat([super().constant_output(counts, weights), torch.tensor([log_dispersion], dtype=torch.float64)])

    def prediction_form(self) -> dict[str, Any]:
        return {**super().prediction_form(), "largest_log_dispersion": LARGEST_LOG_DISPERSION}


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
    """One output for each of `task.quantiles`, with the pinball loss, the mean over quantiles."""

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

        def quantiles(values: np.ndarray, weights: np.ndarray) -> Tensor:
            return torch.from_numpy(np.quantile(values, self._levels.shares, method="inverted_cdf", weights=weights))

        column = self.data.target.name
        return [
            ConstantFit("quantiles", quantiles, column, self.metrics_besides("loss", "coverage")),
            ConstantFit("quantiles", quantiles, column, ("loss",), row_weight),
        ]

    def output_to_explain(self, output: Tensor) -> Tensor:
        return torch.full((len(output),), self._levels.middle)

    def quantities(self, output: Tensor) -> Tensor:
        return quantiles_in_order(self.data, output)[:, self._levels.middle]

    def prediction_form(self) -> dict[str, Any]:
        return self._levels.prediction_form(self.data)
