"""Classes with an order, such as grades: a wrong class is the worse, the farther it is from the right one."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torchmetrics import Metric, MetricCollection

from pipelines.config import TaskSettings
from pipelines.tasks.data import Data
from pipelines.tasks.metrics.accumulation import Loss
from pipelines.tasks.metrics.table import METRICS
from pipelines.tasks.targets.classes import ClassificationTarget


class OrdinalTarget(ClassificationTarget):
    """A cumulative logit model (McCullagh 1980, "Regression models for ordinal data"): the output decides the probability of being above
    each class but the highest. The first output is the logit of being above the lowest class; each further one lowers the logit by its
    softplus, so that these probabilities never rise. The loss is the negative log-likelihood of the class.
    """

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

    def average(self, outputs: Tensor) -> Tensor:
        rows, members, _ = outputs.shape
        probabilities = self._log_probabilities(outputs.flatten(0, 1)).exp().view(rows, members, -1).mean(1)
        return self.output_of_shares(probabilities)

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

    def prediction_form(self) -> dict[str, Any]:
        return {"form": "ordinal", "classes": list(self.classes)}
