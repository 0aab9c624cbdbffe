"""Trivial predictions of masks: shares of classes, of all pixels or of the pixels at one place."""

from math import prod

import numpy as np
import torch
from torch import Tensor

from pipelines.tasks.data import Batch, row_count
from pipelines.tasks.trivial import TrivialPredictor

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
