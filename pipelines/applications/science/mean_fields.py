"""Trivial predictions of functions on a grid: a feature as it is, or the mean of the training split."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from pipelines.tasks.data import Batch, row_count
from pipelines.tasks.trivial import TrivialPredictor

Decode = Callable[[np.ndarray], np.ndarray]


class RepeatFeature(TrivialPredictor):
    """Nothing changes: the prediction is a feature of the target's shape, in the units of the query."""

    reads_rows = False

    def __init__(self, feature: str, shape: tuple[int, ...], raw: Decode, decode: Decode) -> None:
        """`raw` and `decode` convert encoded values of the feature and of the target to the units of the query, by a line each."""
        self.name = f"{feature} unchanged"
        self._feature = feature
        (start, end), (target_start, target_end) = ([of(np.full((1, *shape), value))[0] for value in (0.0, 1.0)] for of in (raw, decode))
        self._slope = (end - start) / (target_end - target_start)
        self._shift = (start - target_start) / (target_end - target_start)

    def output(self, batch: Batch) -> Tensor:
        return batch[self._feature].cpu().double() * torch.from_numpy(self._slope) + torch.from_numpy(self._shift)


class MeanField(TrivialPredictor):
    """The mean of the target in training, for each point."""

    name = "mean"

    def __init__(self, target: str) -> None:
        self._target = target
        self._sum, self._rows = np.zeros(1), 0

    def fit(self, batch: Batch) -> None:
        self._sum = self._sum + batch[self._target].double().numpy().sum(0)
        self._rows += row_count(batch)

    def output(self, batch: Batch) -> Tensor:
        shape = batch[self._target].shape
        return torch.from_numpy(self._sum / max(self._rows, 1)).expand(shape)
