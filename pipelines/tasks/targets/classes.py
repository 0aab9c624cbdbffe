"""Targets with classes, of which a row has one, perhaps with an order such as that of grades."""

import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from math import log
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional
from torchmetrics import Metric, MetricCollection
from torchmetrics.utilities import dim_zero_cat

from pipelines.config import TaskSettings
from pipelines.tasks.data import Data
from pipelines.tasks.metrics.accumulation import Loss, Score
from pipelines.tasks.metrics.classification import F_BETA, Auc, AveragePrecision, BalancedAccuracy, FBeta
from pipelines.tasks.metrics.table import METRICS
from pipelines.tasks.targets.base import Target, average_logits, log_mean_of_models, mean_of_models
from pipelines.tasks.targets.decision import Decision, fit_decision
from pipelines.tasks.trivial import ClassShares, TrivialPredictor


class ClassificationTarget(Target):
    form: ClassVar[str]
    """The answer of `answers` that makes predictions."""
    figures = "classes"
    further_names = "balanced_accuracy, or f1, f2, f0_5 and others for an F-beta"

    def __init__(self, data: Data, settings: TaskSettings | None = None) -> None:
        super().__init__(data, settings)
        self.predictions = "two classes" if len(self.classes) == 2 else "classes"

    def further_metric(self, name: str) -> Callable[[], Metric] | None:
        classes, f_beta = len(self.classes), re.fullmatch(F_BETA, name)
        if name == "balanced_accuracy":
            return lambda: BalancedAccuracy(classes)
        beta = float(f_beta[1].replace("_", ".")) if f_beta else 0.0
        return (lambda: FBeta(beta, classes)) if beta else None

    def usual_metrics(self) -> dict[str, Metric]:
        return {"accuracy": Score(), "loss": Loss()}

    def prediction_form(self) -> dict[str, Any]:
        return {"form": self.form, "classes": list(self.classes)}

    def decide(self, output: Tensor) -> Tensor:
        """The number of the predicted class of each row, int64 of shape (rows,), from float64 output."""
        return self.probabilities(output).argmax(1)

    def update(self, metrics: MetricCollection, output: Tensor, target: Tensor) -> None:
        predicted = self.decide(output)
        metrics["accuracy"].update((predicted == target).double())
        for name in self._further:
            if name != "average_precision":
                metrics[name].update(predicted, target)

    def trivial_predictors(self, row_weight: str, class_weights: Sequence[float]) -> list[TrivialPredictor]:
        """The share of each class, which for the loss is that of the weight."""

        def shares(weights: Sequence[float] = (), stands_for: tuple[str, ...] = (), row_weight: str = "") -> ClassShares:
            return ClassShares(column, len(self.classes), self.data.class_counts, self.output_of_shares, weights, stands_for, row_weight)

        column = self.data.target.name
        if not class_weights and not row_weight:
            return [shares()]
        return [shares(stands_for=self.metrics_besides("loss")), shares(class_weights, ("loss",), row_weight)]

    @abstractmethod
    def output_of_shares(self, shares: Tensor) -> Tensor:
        """The output, shape (outputs,), that gives each class this probability, shape (classes,), above 0."""


class BinaryTarget(ClassificationTarget):
    """Two classes: one logit, for the second class.

    With a `decision`, probabilities, predictions, metrics and losses are those of calibrated logits. A target that is trained has none.
    """

    form = "binary"
    monitor = METRICS["auc"].monitor
    further_names = f"average_precision, {ClassificationTarget.further_names}"

    def __init__(self, data: Data, settings: TaskSettings | None = None) -> None:
        super().__init__(data, settings)
        self.decision = Decision()

    def replace_decision(self, decision: Decision) -> "BinaryTarget":
        target = copy(self)
        target.decision = decision
        return target

    def fit_decision(self, metrics: MetricCollection, class_weights: Sequence[float]) -> Decision:
        """The decision that suits the rows which the `metrics` have accumulated, with the weights of classes if there are."""
        auc = metrics["auc"]
        assert isinstance(auc, Auc)
        scores, is_second = dim_zero_cat(auc.preds).numpy(), dim_zero_cat(auc.target).numpy()
        return fit_decision(scores, is_second == 1, class_weights)

    def decide(self, output: Tensor) -> Tensor:
        threshold_logit = log(self.decision.threshold) - log(1 - self.decision.threshold)
        return (self.decision.calibrate(output[:, 0]) > threshold_logit).long()

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        logits = self.decision.calibrate(output[:, 0])
        return functional.binary_cross_entropy_with_logits(logits, target.to(output.dtype), reduction="none")

    def losses_with_smoothing(self, output: Tensor, target: Tensor, smoothing: float) -> Tensor:
        return self.losses(output, (1 - smoothing) * target.to(output.dtype) + smoothing / 2)

    def derivatives(self, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        probabilities = output.sigmoid()
        return probabilities - target.to(output.dtype)[:, None], probabilities * (1 - probabilities)

    def average(self, outputs: Tensor, shares: Tensor | None = None) -> Tensor:
        return average_logits(outputs, shares)

    def usual_metrics(self) -> dict[str, Metric]:
        return {"auc": Auc(), "average_precision": AveragePrecision(), **super().usual_metrics()}

    def further_metric(self, name: str) -> Callable[[], Metric] | None:
        return AveragePrecision if name == "average_precision" else super().further_metric(name)

    def update(self, metrics: MetricCollection, output: Tensor, target: Tensor) -> None:
        # Probabilities, because the metric applies the sigmoid only to batches with values outside [0, 1].
        for name in ("auc", "average_precision"):
            metrics[name].update(self.decision.calibrate(output[:, 0]).sigmoid(), target.long())
        super().update(metrics, output, target)

    def probabilities(self, output: Tensor) -> Tensor:
        second = self.decision.calibrate(output).sigmoid()
        return torch.cat([1 - second, second], dim=1)

    def output_of_shares(self, shares: Tensor) -> Tensor:
        return shares[1:].log() - shares[:1].log()

    def prediction_form(self) -> dict[str, Any]:
        return {**super().prediction_form(), **self.decision.to_values()}


class ClassTarget(ClassificationTarget):
    """Several classes: one logit per class."""

    form = "classes"
    monitor = METRICS["accuracy"].monitor

    def __init__(self, data: Data, settings: TaskSettings | None = None) -> None:
        super().__init__(data, settings)
        self.outputs = len(self.classes)

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(output, target.long(), reduction="none")

    def losses_with_smoothing(self, output: Tensor, target: Tensor, smoothing: float) -> Tensor:
        return functional.cross_entropy(output, target.long(), reduction="none", label_smoothing=smoothing)

    def average(self, outputs: Tensor, shares: Tensor | None = None) -> Tensor:
        return log_mean_of_models(outputs.log_softmax(2), shares)

    def decide(self, output: Tensor) -> Tensor:
        return output.argmax(1)

    def output_to_explain(self, output: Tensor) -> Tensor:
        return output.argmax(1)

    def probabilities(self, output: Tensor) -> Tensor:
        return output.softmax(1)

    def output_of_shares(self, shares: Tensor) -> Tensor:
        return shares.log()


class OrdinalTarget(ClassificationTarget):
    """A cumulative logit model (McCullagh 1980, "Regression models for ordinal data"): the output decides the probability of being above
    each class but the highest. The first output is the logit of being above the lowest class; each further one lowers the logit by its
    softplus, so that these probabilities never rise. The loss is the negative log-likelihood of the class.
    """

    form = "ordinal"
    monitor = METRICS["rank_error"].monitor

    def __init__(self, data: Data, settings: TaskSettings | None = None) -> None:
        super().__init__(data, settings)
        self.outputs = len(self.classes) - 1

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        return functional.nll_loss(self._log_probabilities(output), target.long(), reduction="none")

    def _log_probabilities(self, output: Tensor) -> Tensor:
        """Shape (rows, classes). With logits a > b of being above a class and above the next one, the probability of being between is
        σ(a) · σ(−b) · (1 − exp(b − a)), and the last factor is the sigmoid of the output whose softplus is a − b."""
        drops = output[:, 1:]
        logits = torch.cat([output[:, :1], output[:, :1] - functional.softplus(drops).cumsum(1)], 1)
        above, below = functional.logsigmoid(logits), functional.logsigmoid(-logits)
        between = above[:, :-1] + below[:, 1:] + functional.logsigmoid(drops)
        return torch.cat([below[:, :1], between, above[:, -1:]], 1)

    def average(self, outputs: Tensor, shares: Tensor | None = None) -> Tensor:
        rows, members, _ = outputs.shape
        probabilities = self._log_probabilities(outputs.flatten(0, 1)).exp().view(rows, members, -1)
        return self.output_of_shares(mean_of_models(probabilities, shares))

    def usual_metrics(self) -> dict[str, Metric]:
        return {"rank_error": Loss("no rows"), **super().usual_metrics()}

    def update(self, metrics: MetricCollection, output: Tensor, target: Tensor) -> None:
        super().update(metrics, output, target)
        metrics["rank_error"].update((self.probabilities(output).argmax(1) - target.long()).abs().double())

    def probabilities(self, output: Tensor) -> Tensor:
        return self._log_probabilities(output).exp()

    def output_of_shares(self, shares: Tensor) -> Tensor:
        tiny = torch.finfo(shares.dtype).tiny
        above = shares.flip(-1).cumsum(-1).flip(-1)[..., 1:].clamp(min=tiny)
        below = shares.cumsum(-1)[..., :-1].clamp(min=tiny)
        logits = above.log() - below.log()
        drops = (logits[..., :-1] - logits[..., 1:]).clamp(min=torch.finfo(shares.dtype).eps)
        return torch.cat([logits[..., :1], drops + torch.log(-torch.expm1(-drops))], -1)
