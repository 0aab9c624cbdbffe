"""Details of an evaluation for the page of a run, and the shares of classes, to compare with."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipelines.applications.segmentation.pixel_metrics import dice, foreground_dice, row_confusions
from pipelines.config import TaskSettings
from pipelines.tasks.data import Batch, Data, row_count
from pipelines.tasks.details.base import Columns, Details, row_numbers
from pipelines.tasks.details.parts import Part, SelectedRows
from pipelines.tasks.trivial import TrivialPredictor

PICTURES = 6
"""Rows whose images and masks are kept."""
MOST_SIDE = 192
"""Pixels of the longer side of a picture; of larger images every n-th row and column is taken."""
MOST_PLACES = 2**23
"""Pixels times classes up to which each place has shares of its own: 64 MB. With more, all places have those of the whole."""


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
