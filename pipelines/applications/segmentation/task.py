"""The task `segmentation`: predicts the class of each pixel of an image, or of each voxel of a volume, by a U-Net that trains on parts of
them.

The loss of a row is the mean cross-entropy of its pixels plus one minus the soft Dice of its pixels (Milletari et al. 2016). Dice is a
ratio of sums, so it is taken of the pixels of one row, and losses are summed over rows: other rows of a pass, of a shard or of a worker
change nothing in it. Parts are cut out and changed at random, each as a pure function of its row's key. Their displacements are as in
Ronneberger et al. 2015: random vectors at a coarse grid, smooth in between.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchmetrics import Metric, MetricCollection

from pipelines.applications.segmentation.mask_details import MaskDetails, PixelShares
from pipelines.applications.segmentation.network import OverPixels, UNet
from pipelines.applications.segmentation.pixel_metrics import dice, foreground_dice, pixel_metrics, row_confusions
from pipelines.applications.segmentation.settings import SegmentationSettings as Settings
from pipelines.config import TaskSettings
from pipelines.config.messages.words import name_list
from pipelines.data.versions.schema import ROW_KEYS
from pipelines.errors import ConfigError
from pipelines.tasks.augmentation import random_integers, uniform_numbers
from pipelines.tasks.base import Batch, Data, Task, sum_losses
from pipelines.tasks.data import Constant, scale_pixels
from pipelines.tasks.details.base import Details
from pipelines.tasks.metrics.accumulation import Loss, Score
from pipelines.tasks.metrics.table import metric_names
from pipelines.tasks.supervised import class_weights
from pipelines.tasks.trivial import TrivialPredictor

_SMOOTHING = 1.0
"""Pixels that are added to both sides of the soft Dice: of a class that a row lacks, a few predicted pixels cost little."""
_PIXELS_AT_ONCE = 2**22
"""Pixels times channels at full resolution that the served model computes at once. Each takes 40 bytes: 170 MB together."""


class Segmentation(Task):
    settings: Settings
    monitor = "dice", "max"

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        """Raises ConfigError if the columns are not one image or volume and its mask, or if settings do not fit their size."""
        super().__init__(settings, data)
        self.image, self.mask = data.features[0], data.target
        self.size = self.mask.shape
        if len(data.features) != 1 or len(self.size) not in (2, 3) or self.image.shape[1:] != self.size or not self.mask.cardinality:
            columns_text = name_list([f"{column.name} {column.shape}" for column in (*data.features, self.mask)])
            raise ConfigError(
                "task.kind is segmentation, which takes one image (channels, height, width) or volume (1, …), of encoder image or volume, "
                f"and its mask without the channels, of encoder mask, but got {columns_text}"
            )
        self._check_settings()
        self.classes = data.classes or tuple(map(str, range(self.mask.cardinality)))
        self.metric_names = metric_names(self.classes)
        weights = class_weights(settings, data)
        self._weight_of_class = None if weights is None else Constant(weights)
        limits, patch = self.settings, self.settings.patch or self.size
        self.draws = bool(patch != self.size or limits.flips or limits.elastic or limits.jitter)
        self.patches = Patches(self.size, patch, limits.patches_per_row, limits.flips, limits.elastic, limits.elastic_points, limits.jitter)

    @property
    def rows_at_once(self) -> int:
        size = tuple(min(length, most) for length, most in zip(self.size, self.settings.tile or self.size, strict=True))
        return max(1, _PIXELS_AT_ONCE // max(prod(size) * self.settings.width, prod(self.size) * len(self.classes)))

    def model(self) -> nn.Module:
        network = UNet(len(self.size), self.image.shape[0], len(self.classes), self.settings.width, self.settings.depth)
        return OverPixels(self.image.name, network, self.settings.tile)

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        network = cast(OverPixels, model).network
        return [*network.down, *network.up]

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        images, masks = batch[self.image.name], batch[self.mask.name]
        if self.draws:
            images, masks = self.patches(scale_pixels(images), masks, batch[ROW_KEYS])
        losses = self.row_losses(model({self.image.name: images}).float(), masks, self.patches.count if self.draws else 1)
        return sum_losses(losses, self.row_weights(losses, batch))

    def row_losses(self, logits: Tensor, masks: Tensor, parts: int = 1) -> Tensor:
        """The loss of each row, shape (rows,), from logits of shape (rows · parts, classes, …) and masks of shape (rows · parts, …), those
        of a row beside each other.

        A pixel's cross-entropy has the weight of its class; the mean is over pixels. Dice is the mean over all classes but the first.
        """
        # One-hot classes instead of indices: on a GPU, the loss of torch for two-dimensional targets is not deterministic.
        numbers = torch.arange(len(self.classes), device=masks.device).reshape(1, -1, *[1] * (masks.dim() - 1))
        is_class = (masks.unsqueeze(1) == numbers).to(logits.dtype)
        log_shares = logits.log_softmax(1)
        cross_entropy = -(is_class * log_shares)
        if self._weight_of_class is not None:
            weight = self._weight_of_class.to(logits.device, logits.dtype)
            cross_entropy = cross_entropy * weight.reshape(-1, *[1] * len(self.size))
        losses = cross_entropy.sum(1).flatten(1).mean(1).reshape(-1, parts).mean(1)
        if not self.settings.dice:
            return losses
        shares = log_shares.exp()

        def count(values: Tensor) -> Tensor:
            """Sums over the pixels of each row, shape (rows, classes)."""
            return values.flatten(2).sum(2).reshape(-1, parts, len(self.classes)).sum(1)

        overlap = (2 * count(shares * is_class) + _SMOOTHING) / (count(shares) + count(is_class) + _SMOOTHING)
        return losses + self.settings.dice * (1 - overlap[:, 1:].mean(1))

    def metrics(self) -> MetricCollection:
        """`dice` is the mean over rows of the mean over classes but the first; `dice_…` the mean of a class over the rows that have or
        should have it. `pixel_accuracy`, `iou`, `iou_…` and `pooled_dice` are of all pixels of the split together."""
        by_class = {f"dice_{name}": Score("no row has or should have the class") for name in self.metric_names[1:]}
        scores: dict[str, Metric | MetricCollection] = {"dice": Score(), **by_class, **pixel_metrics(self.metric_names), "loss": Loss()}
        # In float64, which counts pixels exactly up to 9e15.
        return MetricCollection(scores, compute_groups=False).set_dtype(torch.float64)

    def update(self, metrics: MetricCollection, output: Tensor, batch: Batch) -> None:
        logits, true = output.detach().cpu().float(), batch[self.mask.name].cpu()
        confusions = row_confusions(logits.argmax(1), true, len(self.classes))
        metrics["dice"].update(foreground_dice(confusions))
        for name, values in zip(self.metric_names[1:], dice(confusions)[:, 1:].unbind(1), strict=True):
            metrics[f"dice_{name}"].update(values[~values.isnan()])
        for name in pixel_metrics(self.metric_names):
            metrics[name].update(confusions)
        losses = self.row_losses(logits, true).double()
        metrics["loss"].update(losses, self.row_weights(losses, batch))

    def trivial_predictors(self) -> Sequence[TrivialPredictor]:
        return [PixelShares(self.mask.name, len(self.classes), self.size, by_place) for by_place in (False, True)]

    def details(self) -> Details:
        return MaskDetails(self.settings, self.data, self.classes, self.row_losses)

    def prediction_form(self) -> dict[str, Any]:
        """Of hundreds of thousands of pixels, one between two classes may differ by rounding: those of examples are not compared."""
        return {"form": "pipelines.applications.segmentation.answers:class_masks", "classes": list(self.classes), "inexact": ["prediction"]}

    def _check_settings(self) -> None:
        for name, size in (("patch", self.settings.patch), ("tile", self.settings.tile)):
            if size and len(size) != len(self.size):
                raise ConfigError(
                    f"task.{name} is {list(size)}, but {self.mask.name} has {len(self.size)} axes; give {len(self.size)} numbers"
                )
        patch = self.settings.patch
        if patch and any(part > length for part, length in zip(patch, self.size, strict=True)):
            raise ConfigError(f"task.patch is {list(patch)}, but {self.mask.name} is {list(self.size)}; give a patch that fits into it")
        if self.settings.flips and max(self.settings.flips) >= len(self.size):
            raise ConfigError(
                f"task.flips is {list(self.settings.flips)}, but {self.mask.name} has the axes 0 to {len(self.size) - 1}; name those alone"
            )
        # Voxels of a volume and of its mask lie on each other if both are resampled alike.
        encoders = {name: self.data.encoders[name] for name in (self.image.name, self.mask.name) if name in self.data.encoders}
        spacings = [encoder.feature.get("spacing") for encoder in encoders.values()]
        if len({str(list(spacing or ())) for spacing in spacings}) > 1:
            image, mask = (list(spacing) if spacing else "not set" for spacing in spacings)
            raise ConfigError(
                f"dataset.features.{self.image.name}.spacing is {image}, but that of {self.mask.name} is {mask}, so that a mask would "
                "not lie on its volume; give both the same"
            )
        smallest = min(*self.size, *(patch or ()), *(self.settings.tile or ()))
        if 2**self.settings.depth > smallest:
            raise ConfigError(
                f"task.depth is {self.settings.depth}, which halves {smallest} pixels to less than one; set it to "
                f"{smallest.bit_length() - 1} or less"
            )


_PLACE, _FLIP, _CURVE, _BEND = range(4)


@dataclass(frozen=True)
class Patches:
    """How parts are cut out of images with the shape `size`, and how they are changed."""

    size: tuple[int, ...]
    """Of an image: two or three numbers."""
    part: tuple[int, ...]
    count: int = 1
    """Parts of each image."""
    flips: tuple[int, ...] = ()
    elastic: float = 0.0
    points: int = 4
    jitter: float = 0.0

    def __call__(self, pixels: Tensor, masks: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Cut parts out of float pixels, shape (rows, channels, …), and of masks, shape (rows, …).

        Returns (rows · count, channels, …) and (rows · count, …), those of a row beside each other.
        """
        starts = torch.stack(
            [
                random_integers(keys, self.count, length - part + 1, _PLACE + (axis << 3))
                for axis, (length, part) in enumerate(zip(self.size, self.part, strict=True))
            ],
            -1,
        )
        cut = self._bend if self.elastic and len(keys) else self._cut
        parts, part_masks = cut(pixels, masks, starts, keys)
        for axis in self.flips:
            is_flipped = random_integers(keys, self.count, 2, _FLIP + (axis << 3)).reshape(-1, *[1] * len(self.size)) == 1
            parts = torch.where(is_flipped.unsqueeze(1), parts.flip(2 + axis), parts)
            part_masks = torch.where(is_flipped, part_masks.flip(1 + axis), part_masks)
        if self.jitter:
            parts = change_curve(parts, (1 + self.jitter) ** uniform_numbers(keys, self.count, _CURVE).reshape(-1))
        return parts, part_masks

    def _cut(self, pixels: Tensor, masks: Tensor, starts: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Parts that begin at `starts`, shape (rows, count, axes)."""
        rows = torch.arange(len(keys), device=keys.device).reshape(-1, *[1] * (len(self.size) + 1))
        places = []
        for axis, length in enumerate(self.part):
            along = torch.arange(length, device=keys.device).reshape([-1 if other == axis else 1 for other in range(len(self.size))])
            places.append(starts[..., axis].reshape(*starts.shape[:2], *[1] * len(self.size)) + along)
        cut = pixels.movedim(1, -1)[(rows, *places)]
        return cut.flatten(0, 1).movedim(-1, 1), masks[(rows, *places)].flatten(0, 1)

    def _bend(self, pixels: Tensor, masks: Tensor, starts: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Parts whose pixels come from places that random vectors displace, with the pixel at the edge for those outside."""
        axes, rows = len(self.size), len(keys)
        vectors = torch.stack(
            [
                uniform_numbers(keys, self.count * self.points**axes, _BEND + (axis << 3)).reshape(-1, *[self.points] * axes)
                for axis in range(axes)
            ],
            1,
        )
        mode = "bilinear" if axes == 2 else "trilinear"
        shifts = functional.interpolate(vectors * (sqrt(3) * self.elastic), size=self.part, mode=mode, align_corners=True)
        grid = []
        for axis, (length, part) in enumerate(zip(self.size, self.part, strict=True)):
            along = torch.arange(part, device=keys.device).reshape([-1 if other == axis else 1 for other in range(axes)])
            place = starts[..., axis].reshape(-1, *[1] * axes) + along + shifts[:, axis]
            grid.append((2 * place + 1) / length - 1)
        # Parts of a row lie one below the other, so that the row's pixels are there once.
        places = torch.stack(grid[::-1], -1).reshape(rows, self.count * self.part[0], *self.part[1:], axes)
        shape = (rows, -1, self.count, *self.part)
        parts = functional.grid_sample(pixels, places, "bilinear", "border", align_corners=False)
        bent = functional.grid_sample(masks.unsqueeze(1).to(pixels.dtype), places, "nearest", "border", align_corners=False)
        return parts.reshape(shape).transpose(1, 2).flatten(0, 1), bent.reshape(shape)[:, 0].flatten(0, 1).to(masks.dtype)


def change_curve(parts: Tensor, powers: Tensor) -> Tensor:
    """Raise the pixels of each part, scaled to numbers from 0 at its lowest to 1 at its highest, to a power of shape (parts,)."""
    flat = parts.flatten(1)
    low, high = flat.amin(1, keepdim=True), flat.amax(1, keepdim=True)
    span = (high - low).clamp(min=1e-12)
    return (((flat - low) / span) ** powers.unsqueeze(1) * span + low).reshape(parts.shape)
