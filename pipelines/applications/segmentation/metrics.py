"""Metrics of masks, details for the page of a run, and the shares of classes, to compare with. Counts of pixels are whole numbers, so
their sums are exact in any order.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric

from pipelines.config import TaskSettings
from pipelines.tasks.data import Batch, Data, row_count
from pipelines.tasks.details.base import Columns, Details, row_numbers
from pipelines.tasks.details.parts import Part, SelectedRows
from pipelines.tasks.trivial import TrivialPredictor

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
    by_class: dict[str, Metric] = {f"iou_{name}": PixelMetric(classes, partial(_class_iou, number)) for number, name in enumerate(names)}
    return {
        "pixel_accuracy": PixelMetric(classes, _accuracy),
        "iou": PixelMetric(classes, _mean_iou),
        "pooled_dice": PixelMetric(classes, _mean_dice),
        **by_class,
    }


def _accuracy(counts: Tensor) -> Tensor:
    return counts.trace() / counts.sum()


def _mean_iou(counts: Tensor) -> Tensor:
    return iou(counts).nanmean()


def _mean_dice(counts: Tensor) -> Tensor:
    return dice(counts)[1:].nanmean()


def _class_iou(number: int, counts: Tensor) -> Tensor:
    return iou(counts)[number]


PICTURES = 6
MOST_SIDE = 192
"""Pixels of the longer side of a picture; of larger images every n-th row and column is taken."""


class MaskDetails(Details):
    """Sums of pixels by true and predicted class. Of the rows with the least Dice it keeps the image, the true and the predicted mask; of a
    volume the slice, looked at from above, with most pixels that are not background."""

    kind = "masks"

    def __init__(self, settings: TaskSettings, data: Data, classes: Sequence[str], losses: Callable[[Tensor, Tensor], Tensor]) -> None:
        """`losses` gives the loss of each row, from the model's output and true masks."""
        super().__init__(settings, data)
        self.classes, self._losses = tuple(classes), losses
        self.pictures = SelectedRows(PICTURES)

    @property
    def parts(self) -> list[Part]:
        return [*super().parts, self.pictures]

    def update(self, output: Tensor, batch: Batch) -> None:
        logits, true = output.float(), batch[self.data.target.name].cpu()
        predicted = logits.argmax(1)
        confusions = row_confusions(predicted, true, len(self.classes))
        by_class, scores = dice(confusions).numpy(), foreground_dice(confusions).numpy()
        losses, rows = self._losses(logits, true).double().numpy(), row_numbers(batch)
        self.sums.add("confusion", confusions.sum(0).long().numpy())
        self.sums.add("dice", np.nansum(by_class, 0))
        self.sums.add("rows", (~np.isnan(by_class)).sum(0))
        self.sums.add("all_rows", np.array(len(rows)))
        self.slices.update(batch, {"loss": losses})
        accuracies = (confusions.diagonal(dim1=1, dim2=2).sum(1) / confusions.sum((1, 2))).numpy()
        self._offer(self.outcomes, batch, {"dice": scores, "pixel_accuracy": accuracies, "loss": losses})
        worst = {"dice": scores, **{f"dice {name}": by_class[:, number] for number, name in enumerate(self.classes) if number}}
        self.worst.offer(-np.nan_to_num(losses, nan=np.inf), rows, lambda places: {name: values[places] for name, values in worst.items()})
        images = batch[self.data.features[0].name]

        def values(places: np.ndarray) -> dict[str, np.ndarray]:
            index = torch.from_numpy(places)
            chosen = [images[index.to(images.device)].cpu().float().numpy(), true[index].numpy(), predicted[index].numpy()]
            return {"pictures": np.stack([_pictures(*arrays) for arrays in zip(*chosen, strict=True)]), "dice": scores[places]}

        self.pictures.offer(scores, rows, values)

    def tables(self) -> dict[str, Columns]:
        sums, pictures, tables = self.sums.arrays, self.pictures.columns, dict[str, Columns]()
        if sums:
            confusion = sums["confusion"]
            tables["mask_classes"] = {
                "class": list(self.classes),
                "pixels": confusion.sum(1).tolist(),
                "predicted": confusion.sum(0).tolist(),
                "both": confusion.diagonal().tolist(),
                "rows": sums["rows"].tolist(),
                "dice": sums["dice"].tolist(),
            }
        if pictures:  # the image and both masks as bytes, one byte for each pixel, row by row
            names = ("image", "true", "predicted")
            files = {name: [row[place].tobytes() for row in pictures["pictures"]] for place, name in enumerate(names)}
            tables["masks"] = {"row": self.pictures.rows.tolist(), "dice": pictures["dice"].tolist(), **files}
        return tables

    def summary(self) -> dict[str, Any]:
        size = self.pictures.columns["pictures"].shape[2:] if self.pictures.columns else ()
        return {
            "target": self.data.target.name,
            "classes": list(self.classes),
            "picture_size": list(size),
            "rows": int(self.sums.arrays.get("all_rows", 0)),
        }


def _pictures(image: np.ndarray, true: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """The image and both masks of a row as uint8 of shape (3, height, width); the image in grey, from its lowest to its highest value."""
    grey = image.mean(0)
    if true.ndim == 3:
        filled = (true > 0).sum((0, 1))
        level = int(filled.argmax()) if filled.any() else true.shape[2] // 2
        # Seen from above, with the front at the top.
        grey, true, predicted = (volume[:, ::-1, level].T for volume in (grey, true, predicted))
    stride = -(-max(true.shape) // MOST_SIDE)
    low, high = grey.min(), grey.max()
    scaled = (grey - low) / (high - low if high > low else 1) * 255
    return np.stack([values[::stride, ::stride].astype(np.uint8) for values in (scaled, true, predicted)])


MOST_PLACES = 2**23
"""Pixels times classes up to which each place has shares of its own: 64 MB. With more, all places have those of the whole."""


class PixelShares(TrivialPredictor):
    """The share of each class among the pixels of training masks: the majority class is predicted."""

    def __init__(self, mask: str, classes: int, size: tuple[int, ...], by_place: bool) -> None:
        """`by_place` has shares for each place in the mask, as where an organ mostly lies."""
        self.by_place = by_place and classes * prod(size) <= MOST_PLACES
        self.name = "class shares by place" if self.by_place else "class shares"
        self._mask, self._size = mask, size
        self._counts = np.zeros((classes, *(size if self.by_place else [1] * len(size))), np.int64)

    def fit(self, batch: Batch) -> None:
        masks = batch[self._mask].numpy()
        for number in range(len(self._counts)):
            is_class = masks == number
            self._counts[number] += is_class.sum(0) if self.by_place else is_class.sum()

    def output(self, batch: Batch) -> Tensor:
        """Logarithms of the shares with one occurrence more of each class, since no logit is −∞."""
        counts = torch.from_numpy(self._counts) + 1.0
        logits = (counts / counts.sum(0)).log().float()
        return logits.expand(row_count(batch), len(self._counts), *self._size)
