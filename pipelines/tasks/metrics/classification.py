"""Metrics of classes: the areas under the ROC curve (AUC) and under that of precision and recall, balanced accuracy, F-beta.

Each is scikit-learn's, but for rows that do not define it, where it has no value instead of 0 or 1.
"""

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import BinaryAUROC
from torchmetrics.utilities import dim_zero_cat

from pipelines.ranking import average_precision, rows_by_score
from pipelines.tasks.metrics.table import NO_ROWS, ONE_CLASS

F_BETA = r"f(\d{1,3}(?:_\d{1,3})?)"
"""The name of an F-beta: `f1`, `f2`, `f0_5`. No metric has a dot in its name, since torch has it for the parts of a module."""


class Auc(BinaryAUROC):
    """The area under the ROC curve; NaN for rows of one class, where torchmetrics gives 0, and if a score is NaN."""

    preds: list[Tensor]
    """A tensor once those of several workers are gathered; `target` alike."""
    target: list[Tensor]

    def __init__(self) -> None:
        super().__init__(validate_args=False)

    def compute(self) -> Tensor:  # type: ignore[override]
        is_nan = self.missing_reason() or bool(dim_zero_cat(self.preds).isnan().any())
        return torch.tensor(torch.nan, dtype=torch.float64) if is_nan else super().compute()

    def missing_reason(self) -> str:
        if not len(self.target):
            return NO_ROWS
        classes = dim_zero_cat(self.target)
        rows, positives = len(classes), int(classes.sum())
        return NO_ROWS if not rows else ONE_CLASS if positives in (0, rows) else ""


class AveragePrecision(Auc):
    """The sum of precision over the steps of recall; NaN for rows of one class."""

    def compute(self) -> Tensor:  # type: ignore[override]
        if self.missing_reason() or bool(dim_zero_cat(self.preds).isnan().any()):
            return torch.tensor(torch.nan, dtype=torch.float64)
        scores, is_positive = dim_zero_cat(self.preds).numpy(), dim_zero_cat(self.target).numpy() == 1
        return torch.tensor(average_precision(*rows_by_score(scores, is_positive)))


class ClassCounts(Metric):
    """Base class of metrics of decisions: for each class the rows that have it, that are predicted to have it, and both."""

    full_state_update = False
    higher_is_better = True
    true: Tensor
    predicted: Tensor
    both: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__()
        for name in ("true", "predicted", "both"):
            self.add_state(name, default=torch.zeros(classes, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, predicted: Tensor, true: Tensor) -> None:
        """Add rows: numbers of classes of shape (rows,), or 0 and 1 of shape (rows, classes) where a row has several."""
        if predicted.dim() == 1:
            predicted, true = (torch.nn.functional.one_hot(values.long(), len(self.true)) for values in (predicted, true))
        predicted, true = predicted.long(), true.long()
        self.true += true.sum(0)
        self.predicted += predicted.sum(0)
        self.both += (predicted * true).sum(0)

    def compute(self) -> Tensor:
        return torch.tensor(torch.nan if self.missing_reason() else self.value(), dtype=torch.float64)

    def value(self) -> float:
        raise NotImplementedError

    def missing_reason(self) -> str:
        classes = int((self.true > 0).sum())
        return NO_ROWS if not classes else ONE_CLASS if classes == 1 else ""


class BalancedAccuracy(ClassCounts):
    """The mean share of each class's rows that are predicted as it, of the classes that have rows."""

    def value(self) -> float:
        has_rows = self.true > 0
        return float((self.both[has_rows] / self.true[has_rows]).mean())


class FBeta(ClassCounts):
    """The harmonic mean of precision and recall, where recall has β² times the weight (van Rijsbergen 1979): of the second of two classes;
    of several the mean over those that occur or are predicted, and with `is_pooled` that of all labels of all rows together."""

    def __init__(self, beta: float, classes: int, is_pooled: bool = False) -> None:
        super().__init__(classes)
        self._square, self._is_pooled = beta**2, is_pooled

    def value(self) -> float:
        counts = torch.stack([self.true, self.predicted, self.both]).double()
        counts = counts.sum(1, keepdim=True) if self._is_pooled else counts[:, 1:] if counts.shape[1] == 2 else counts
        true, predicted, both = counts[:, (counts[0] + counts[1]) > 0]
        return float(((1 + self._square) * both / (self._square * true + predicted)).mean())

    def missing_reason(self) -> str:
        if self._is_pooled:
            return "" if self.true.sum() else "no row has a label"
        return super().missing_reason()
