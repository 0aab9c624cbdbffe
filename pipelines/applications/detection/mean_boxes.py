"""Trivial predictions of boxes: those that training images mostly have at a place."""

import logging
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pipelines.applications.detection.network import LEAST_DISTANCE, distances_to, make_targets
from pipelines.tasks.data import Batch, row_count
from pipelines.tasks.trivial import TrivialPredictor

log = logging.getLogger(__name__)
_LEAST_SHARE = 1e-4


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
            names = ", ".join(absent)
            log.warning(
                "no box of the class %s is among the rows of the training split that were looked at; a model cannot learn it", names
            )
        mean_distances = self._distances.sum((1, 2), keepdims=True) / max(self._weights.sum(), 1e-12)
        distances = np.where(self._weights > 0, self._distances / np.maximum(self._weights, 1e-12), mean_distances)
        shares = np.clip(self._heat / max(self._rows, 1), _LEAST_SHARE, 1 - _LEAST_SHARE)
        maps = [np.log(shares / (1 - shares)), np.log(np.maximum(distances, LEAST_DISTANCE))]
        self._output = torch.from_numpy(np.concatenate(maps)).float()

    def output(self, batch: Batch) -> Tensor:
        return self._output.expand(row_count(batch), *self._output.shape)
