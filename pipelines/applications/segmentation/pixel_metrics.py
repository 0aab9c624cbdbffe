"""Metrics of masks: Dice, intersection over union and accuracy of their pixels. Counts of pixels are whole numbers, so their sums are exact
in any order.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torchmetrics import Metric

NO_PIXEL = "no pixel has or should have the class"


def row_confusions(predicted: Tensor, true: Tensor, classes: int) -> Tensor:
    """Pixels of each row by true and predicted class, float64 of shape (rows, classes, classes), from classes of shape (rows, …)."""
    pairs = true.flatten(1).long() * classes + predicted.flatten(1)
    counts = [row.bincount(minlength=classes**2) for row in pairs]
    return torch.cat([torch.empty(0, dtype=torch.int64), *counts]).reshape(-1, classes, classes).double()


def dice(confusions: Tensor) -> Tensor:
    """Dice of each class, 2 · both / (true + predicted), shape (…, classes), from counts of shape (…, classes, classes); NaN for a class
    that neither has (Dice 1945)."""
    both = confusions.diagonal(dim1=-2, dim2=-1)
    return 2 * both / (confusions.sum(-1) + confusions.sum(-2))


def iou(confusions: Tensor) -> Tensor:
    """Intersection over union of each class, as `dice`."""
    both = confusions.diagonal(dim1=-2, dim2=-1)
    return both / (confusions.sum(-1) + confusions.sum(-2) - both)


def foreground_dice(confusions: Tensor) -> Tensor:
    """Mean of the Dice of all classes but the first, shape (…,): without those that neither has, and 1 where neither has any."""
    return dice(confusions)[..., 1:].nanmean(-1).nan_to_num(nan=1.0)


class PixelMetric(Metric):
    """A function of the counts of all pixels of a split, by true and predicted class."""

    full_state_update = False
    higher_is_better = True
    counts: Tensor

    def __init__(self, classes: int, value: Callable[[Tensor], Tensor]) -> None:
        """`value` makes a scalar of counts of shape (classes, classes), which is NaN if it is not defined."""
        super().__init__()
        self._value = value
        self.add_state("counts", default=torch.zeros((classes, classes), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, confusions: Tensor) -> None:
        """Add counts of shape (rows, classes, classes)."""
        self.counts += confusions.sum(0)

    def compute(self) -> Tensor:
        return self._value(self.counts)

    def missing_reason(self) -> str:
        return NO_PIXEL if self._value(self.counts).isnan() else ""


def pixel_metrics(names: Sequence[str]) -> dict[str, Metric]:
    """New metrics over all pixels of a split: `pixel_accuracy`, `iou` and `pooled_dice`, means over classes, and `iou_…` of each class."""
    classes = len(names)
    means = {
        "pixel_accuracy": PixelMetric(classes, _accuracy),
        "iou": PixelMetric(classes, _mean_iou),
        "pooled_dice": PixelMetric(classes, _mean_dice),
    }
    return {**means, **{f"iou_{name}": PixelMetric(classes, partial(_class_iou, number)) for number, name in enumerate(names)}}


# Workers send each other their metrics, and pickle takes functions of a module only.


def _accuracy(counts: Tensor) -> Tensor:
    return counts.trace() / counts.sum()


def _mean_iou(counts: Tensor) -> Tensor:
    return iou(counts).nanmean()


def _mean_dice(counts: Tensor) -> Tensor:
    return dice(counts)[1:].nanmean()


def _class_iou(number: int, counts: Tensor) -> Tensor:
    return iou(counts)[number]
