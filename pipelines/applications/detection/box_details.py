"""Details of an evaluation for the page of a run, and the boxes that training images mostly have at a place, to compare with."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipelines.applications.detection.losses import LEAST_DISTANCE, distances_to, make_targets
from pipelines.applications.detection.predicted_boxes import NO_BOX, pairwise_iou
from pipelines.config import TaskSettings
from pipelines.tasks.data import Batch, Data, row_count
from pipelines.tasks.details.base import Columns, Details, row_numbers
from pipelines.tasks.details.parts import Part, SelectedRows
from pipelines.tasks.trivial import TrivialPredictor

log = logging.getLogger(__name__)

PICTURES = 6
"""Rows whose images are kept."""
MOST_SIDE = 192
"""Pixels of the longer side of a picture; of larger images every n-th row and column is taken."""
MOST_DRAWN = 100
"""Boxes of a picture that are drawn."""
RIGHT = 0.5
"""Intersection over union with a true box of a box that is right."""
_LEAST_SHARE = 1e-4
"""Of training images with an object at a place, so that the heat's logit is finite."""


class BoxDetails(Details):
    """Sums of true boxes, of predicted ones and of those that are right, by class. Of the rows with the largest loss
    it keeps the image and both sorts of boxes."""

    kind = "boxes"

    def __init__(
        self,
        settings: TaskSettings,
        data: Data,
        classes: Sequence[str],
        losses: Callable[[Tensor, Tensor], Tensor],
        find: Callable[[Tensor], list[np.ndarray]],
    ) -> None:
        """`losses` gives the loss of each row from the model's output and true boxes, `find` the boxes that are predicted, with scores."""
        super().__init__(settings, data)
        self.classes, self._losses, self._find = tuple(classes), losses, find
        self.pictures = SelectedRows(PICTURES)

    @property
    def parts(self) -> list[Part]:
        return [*super().parts, self.pictures]

    def update(self, output: Tensor, batch: Batch) -> None:
        padded = batch[self.data.target.name].cpu()
        losses, rows = self._losses(output.float(), padded).double().numpy(), row_numbers(batch)
        true = [boxes[boxes[:, 0] != NO_BOX].numpy() for boxes in padded]
        predicted = self._find(output)
        counts = np.stack([count_right(*boxes, len(self.classes)) for boxes in zip(predicted, true, strict=True)])
        for name, sums in zip(("true", "predicted", "right"), counts.sum(0), strict=True):
            self.sums.add(name, sums)
        self.sums.add("all_rows", np.array(len(rows)))
        self.slices.update(batch, {"loss": losses})
        self._offer(self.outcomes, batch, {"loss": losses})
        totals = dict(zip(("boxes", "predicted boxes", "right boxes"), counts.sum(2).T, strict=True))
        self.worst.offer(-np.nan_to_num(losses, nan=np.inf), rows, lambda places: {name: values[places] for name, values in totals.items()})
        images = batch[self.data.features[0].name]

        def values(places: np.ndarray) -> dict[str, np.ndarray]:
            index = torch.from_numpy(places)
            images_kept = images[index.to(images.device)].cpu().float().numpy()
            return {
                "pictures": np.stack([_picture(image) for image in images_kept]),
                "loss": losses[places],
                "true": np.stack([_pad(true[place]) for place in places]),
                "predicted": np.stack([_pad(predicted[place]) for place in places]),
            }

        self.pictures.offer(-np.nan_to_num(losses, nan=np.inf), rows, values)

    def tables(self) -> dict[str, Columns]:
        sums, pictures = self.sums.arrays, self.pictures.columns
        tables: dict[str, Columns] = {}
        if sums:
            tables["box_classes"] = {"class": list(self.classes), **{name: sums[name].tolist() for name in ("true", "predicted", "right")}}
        if pictures:
            boxes = {name: [row[row[:, 0] != NO_BOX].tobytes() for row in pictures[name]] for name in ("true", "predicted")}
            images = [picture.tobytes() for picture in pictures["pictures"]]
            tables["boxes"] = {"row": self.pictures.rows.tolist(), "loss": pictures["loss"].tolist(), "image": images, **boxes}
        return tables

    def summary(self) -> dict[str, Any]:
        size = self.pictures.columns["pictures"].shape[1:] if self.pictures.columns else ()
        return {
            "target": self.data.target.name,
            "classes": list(self.classes),
            "picture_size": list(size),
            "image_size": list(self.data.features[0].shape[1:]),
            "rows": int(self.sums.arrays.get("all_rows", 0)),
        }


def count_right(predicted: np.ndarray, true: np.ndarray, classes: int) -> np.ndarray:
    """True boxes, predicted ones, and those that are right, by class; int64 of shape (3, classes).

    A predicted box, the best first, takes the true box of its class that it overlaps most, if by half or more; each is taken once.
    """
    counts = np.zeros((3, classes), np.int64)
    for number in range(classes):
        predicted_of_class, true_of_class = predicted[predicted[:, 0] == number], true[true[:, 0] == number]
        ious = pairwise_iou(predicted_of_class[:, 1:5], true_of_class[:, 1:5])
        for row in range(len(predicted_of_class)):
            if ious.shape[1] and ious[row].max() >= RIGHT:
                ious[:, ious[row].argmax()] = -1
                counts[2, number] += 1
        counts[:2, number] = len(true_of_class), len(predicted_of_class)
    return counts


def _pad(boxes: np.ndarray) -> np.ndarray:
    """Class and edges of the first MOST_DRAWN boxes, float32 of shape (MOST_DRAWN, 5)."""
    padded = np.full((MOST_DRAWN, 5), NO_BOX, np.float32)
    padded[: len(boxes)] = boxes[:MOST_DRAWN, :5]
    return padded


def _picture(image: np.ndarray) -> np.ndarray:
    """An image, channels first, as uint8 of shape (height, width, 3), from its lowest to its highest value."""
    colours = image[:3] if len(image) >= 3 else image[:1].repeat(3, 0)
    stride = -(-max(image.shape[1:]) // MOST_SIDE)
    low, high = colours.min(), colours.max()
    scaled = (colours[:, ::stride, ::stride] - low) / (high - low if high > low else 1) * 255
    return scaled.transpose(1, 2, 0).astype(np.uint8)


class MeanBoxes(TrivialPredictor):
    """At every place, the mean heat of each class over training images, and the mean distances of the boxes around it."""

    name = "mean boxes by place"

    def __init__(self, target: str, classes: Sequence[str], size: tuple[int, int], stride: int) -> None:
        """`size` is that of the network's output."""
        self._target, self._classes, self._size, self._stride = target, tuple(classes), size, stride
        self._rows = 0
        self._heat = np.zeros((len(classes), *size))
        self._distances, self._weights = np.zeros((4, *size)), np.zeros(size)
        self._counts = np.zeros(len(classes), np.int64)
        self._output = torch.zeros(0)

    def fit(self, batch: Batch) -> None:
        boxes = batch[self._target]
        targets = make_targets(boxes, len(self._classes), self._size, self._stride)
        self._rows += len(boxes)
        self._heat += targets.heat.double().sum(0).numpy()
        self._distances += (distances_to(targets.boxes, self._stride) * targets.weights.unsqueeze(1)).double().sum(0).numpy()
        self._weights += targets.weights.double().sum(0).numpy()
        self._counts += (boxes[..., 0].unsqueeze(-1) == torch.arange(len(self._classes))).sum((0, 1)).numpy()

    def finish(self) -> None:
        """Where no training image has a box, the distances are those of the whole."""
        if absent := [name for name, count in zip(self._classes, self._counts, strict=True) if not count]:
            message = "no box of the class %s is among the rows of the training split that were looked at; a model cannot learn it"
            log.warning(message, ", ".join(absent))
        mean_distances = self._distances.sum((1, 2), keepdims=True) / max(self._weights.sum(), 1e-12)
        distances = np.where(self._weights > 0, self._distances / np.maximum(self._weights, 1e-12), mean_distances)
        shares = np.clip(self._heat / max(self._rows, 1), _LEAST_SHARE, 1 - _LEAST_SHARE)
        maps = [np.log(shares / (1 - shares)), np.log(np.maximum(distances, LEAST_DISTANCE))]
        self._output = torch.from_numpy(np.concatenate(maps)).float()

    def output(self, batch: Batch) -> Tensor:
        return self._output.expand(row_count(batch), *self._output.shape)
