"""The task `detection`: finds the objects of an image, by a convolutional network without anchors, and the views that it trains on.

A row's loss is the focal loss of heat plus that of boxes, both per box of the row, as `losses` has them. Losses are summed over rows:
other rows of a pass, of a shard or of a worker change nothing in one. A view is a pure function of its row's key.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torchmetrics import Metric, MetricCollection

from pipelines.applications.detection.average_precision import COCO, COUNTED_BOXES, HALF, MISSING, BoxPrecision, has_library
from pipelines.applications.detection.box_details import BoxDetails, MeanBoxes
from pipelines.applications.detection.losses import row_losses
from pipelines.applications.detection.network import OverColumn, Pyramid
from pipelines.applications.detection.predicted_boxes import NO_BOX, find_boxes
from pipelines.applications.detection.settings import DetectionSettings as Settings
from pipelines.config import TaskSettings
from pipelines.config.messages.words import name_list
from pipelines.data.versions.schema import ROW_KEYS
from pipelines.errors import ConfigError
from pipelines.tasks.augmentation import random_integers, uniform_numbers
from pipelines.tasks.base import Batch, Data, Task, sum_losses
from pipelines.tasks.data import Constant, scale_pixels
from pipelines.tasks.details.base import Details
from pipelines.tasks.metrics.accumulation import Loss
from pipelines.tasks.metrics.table import metric_names
from pipelines.tasks.trivial import TrivialPredictor

LEAST_SCORE = 0.01
"""Scores below count in no metric."""
_PIXELS_AT_ONCE = 2**22
"""Pixels times channels of the finest features that the served model computes at once. Each takes 40 bytes: 170 MB together."""


class Detection(Task):
    settings: Settings
    monitor = "map_50", "max"

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        """Raises ConfigError if the columns are not one image and its boxes, or if both are not of one size."""
        super().__init__(settings, data)
        self.image, self.boxes = data.features[0], data.target
        self.classes = data.classes
        self.metric_names = metric_names(self.classes)
        has_boxes = self.boxes.shape[1:] == (5,) and self.boxes.dtype == "float32" and self.classes
        if len(data.features) != 1 or len(self.image.shape) != 3 or not has_boxes:
            columns_text = name_list([f"{column.name} {column.shape}" for column in (*data.features, self.boxes)])
            raise ConfigError(
                "task.kind is detection, which takes one image (channels, height, width), of encoder image, and its boxes, of encoder "
                f"boxes, but got {columns_text}"
            )
        settings, (_, height, width) = self.settings, self.image.shape
        self.size = height, width
        self.map_size = -(-height // settings.stride), -(-width // settings.stride)  # convolutions with stride 2 round up
        fitted = data.encoders.get(self.boxes.name)
        size = tuple(fitted.feature.get("shape", self.size)) if fitted else self.size
        if size != self.size:
            raise ConfigError(
                f"dataset.target.{self.boxes.name}.shape is {list(size)}, but {self.image.name} has {list(self.size)} pixels, so that "
                f"boxes would not lie on their objects; set it to {list(self.size)}"
            )
        self.draws = bool(settings.flips or settings.zoom or settings.jitter)
        self.views = Views(self.size, settings.flips, settings.zoom, settings.jitter)

    def check(self) -> None:
        if not has_library():
            raise ConfigError(f"task.kind is detection, whose metrics cannot be computed: {MISSING}")

    @property
    def rows_at_once(self) -> int:
        height, width = self.size
        return max(1, 4 * _PIXELS_AT_ONCE // (height * width * self.settings.width))

    def model(self) -> nn.Module:
        chosen = self.settings
        network = Pyramid(self.image.shape[0], len(self.classes), chosen.width, chosen.stages, chosen.blocks, chosen.stride, chosen.head)
        return OverColumn(self.image.name, network)

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        return list(cast(Pyramid, cast(OverColumn, model).network).down)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        images, boxes = batch[self.image.name], batch[self.boxes.name]
        if self.draws:
            images, boxes = self.views(scale_pixels(images), boxes, batch[ROW_KEYS])
        losses = self.row_losses(model({self.image.name: images}), boxes)
        return sum_losses(losses, self.row_weights(losses, batch))

    def row_losses(self, output: Tensor, boxes: Tensor) -> Tensor:
        """The loss of each row, shape (rows,), from the model's output and true boxes."""
        return row_losses(output.float(), boxes, self.settings.stride, self.settings.box_weight)

    def metrics(self) -> MetricCollection:
        """`map_50` is the mean over classes of the average precision, where a box is right that overlaps a true one by half; `map_50_…`
        that of a class; `map` the mean over overlaps from 0.5 to 0.95."""
        by_class = {f"map_50_{name}": BoxPrecision(HALF, number) for number, name in enumerate(self.metric_names)}
        scores: dict[str, Metric | MetricCollection] = {
            "map_50": BoxPrecision(HALF), "map": BoxPrecision(COCO), **by_class, "loss": Loss()
        }  # fmt: skip
        return MetricCollection(scores, compute_groups=False).set_dtype(torch.float64)

    def update(self, metrics: MetricCollection, output: Tensor, batch: Batch) -> None:
        output, boxes = output.detach().cpu().float(), batch[self.boxes.name].cpu()
        predicted, true = self.find(output, COUNTED_BOXES, LEAST_SCORE), true_boxes(boxes)
        for name, metric in metrics.items(copy_state=False):
            if isinstance(metric, BoxPrecision):
                metrics[name].update(predicted, true)
        losses = self.row_losses(output, boxes).double()
        metrics["loss"].update(losses, self.row_weights(losses, batch))

    def find(self, output: Tensor, most: int, least_score: float) -> list[np.ndarray]:
        """The boxes of each row with these scores, as `peaks.find_boxes` has them."""
        return find_boxes(output.detach().cpu().float().numpy(), self.settings.stride, self.size, most, least_score)

    def trivial_predictors(self) -> Sequence[TrivialPredictor]:
        return [MeanBoxes(self.boxes.name, self.classes, self.map_size, self.settings.stride)]

    def details(self) -> Details:
        return BoxDetails(
            self.settings,
            self.data,
            self.classes,
            self.row_losses,
            lambda output: self.find(output, self.settings.boxes, self.settings.min_score),
        )

    def prediction_form(self) -> dict[str, Any]:
        chosen = self.settings
        return {
            "form": "pipelines.applications.detection.predicted_boxes:answer_boxes",
            "classes": list(self.classes),
            "size": list(self.size),
            "stride": chosen.stride,
            "most": chosen.boxes,
            "least_score": chosen.min_score,
        }


def true_boxes(boxes: Tensor) -> list[np.ndarray]:
    """The boxes of each row without padding, float64 of shape (boxes, 5)."""
    return [row[row[:, 0] != NO_BOX].double().numpy() for row in boxes]


_FLIP, _ZOOM, _PLACE, _LIGHT = range(4)
_VISIBLE = 1 / 3
"""Part of a box that a view has to show, or it is none."""


@dataclass(frozen=True)
class Views:
    """How images of shape `size` are seen."""

    size: tuple[int, int]
    """Height and width."""
    flips: tuple[int, ...] = ()
    zoom: float = 0.0
    jitter: float = 0.0

    @cached_property
    def _width_and_height(self) -> Constant:
        return Constant(torch.tensor(self.size[::-1], dtype=torch.float32))

    def __call__(self, pixels: Tensor, boxes: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Views of float pixels, shape (rows, channels, height, width), from 0 to 1, and of boxes, shape (rows, most, 5)."""
        if self.zoom and len(keys):
            with torch.autocast(pixels.device.type, enabled=False):  # a grid in bf16 would move pixels against their boxes
                pixels, boxes = self._enlarge(pixels, boxes, keys)
        for axis in self.flips:
            is_flipped = random_integers(keys, 1, 2, _FLIP + (axis << 3)).reshape(-1) == 1
            pixels = torch.where(is_flipped[:, None, None, None], pixels.flip(2 + axis), pixels)
            boxes = torch.where(is_flipped[:, None, None], mirror(boxes, axis, self.size[axis]), boxes)
        if self.jitter and len(keys):
            # Contrast, brightness and each channel change.
            channels = pixels.shape[1]
            factors = (1 + self.jitter) ** uniform_numbers(keys, 2 + channels, _LIGHT)
            contrast, brightness, tint = factors[..., None, None].split([1, 1, channels], 1)
            mean = pixels.mean((1, 2, 3), keepdim=True)
            pixels = (((pixels - mean) * contrast + mean * brightness) * tint**0.5).clamp(0, 1)
        return pixels, boxes

    def _enlarge(self, pixels: Tensor, boxes: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Enlarge around a random place; what lies outside an image has its mean colour."""
        factor = (1 + self.zoom) ** uniform_numbers(keys, 1, _ZOOM)
        size = self._width_and_height.to(pixels.device)
        view_size = size / factor
        start = (size - view_size) * (uniform_numbers(keys, 2, _PLACE) + 1) / 2
        # From −1 to 1 within the view to the same within the image.
        scale, shift = view_size / size, (2 * start + view_size) / size - 1
        matrices = torch.cat([torch.diag_embed(scale), shift.unsqueeze(-1)], -1)
        mean = pixels.mean((2, 3), keepdim=True)
        grid = functional.affine_grid(matrices, list(pixels.shape), align_corners=False)
        view = functional.grid_sample(pixels - mean, grid, "bilinear", "zeros", align_corners=False) + mean
        moved = (boxes[..., 1:] - start.repeat(1, 2).unsqueeze(1)) * factor.unsqueeze(-1)
        clipped = torch.minimum(moved.clamp(min=0), size.repeat(2))
        is_visible = areas(clipped) > _VISIBLE * areas(moved)
        number = torch.where(is_visible, boxes[..., 0], NO_BOX)
        return view, torch.cat([number.unsqueeze(-1), clipped], -1)


def mirror(boxes: Tensor, axis: int, length: int) -> Tensor:
    """The boxes of a mirrored image; axis 0 is the vertical one."""
    number, *edges = boxes.unbind(-1)
    low = 1 - axis
    edges[low], edges[low + 2] = length - edges[low + 2], length - edges[low]
    return torch.stack([number, *edges], -1)


def areas(boxes: Tensor) -> Tensor:
    """Of edges of shape (…, 4)."""
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])
