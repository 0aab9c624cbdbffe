"""Details of functions on a grid for the page of a run, and predictions to compare with: a feature as it is, or the mean of the training
split.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipelines.config import TaskSettings
from pipelines.tasks.data import Batch, Data, row_count
from pipelines.tasks.details.base import Columns, Details, row_numbers
from pipelines.tasks.details.parts import SelectedRows, sampling_keys
from pipelines.tasks.trivial import TrivialPredictor

FUNCTIONS, MOST_POINTS = 4, 512
"""Rows that are kept, and points of each; of finer grids every n-th one."""


class FieldDetails(Details):
    """Errors and functions in the units of the query. Of a plane, the line through the middle of its first axis is kept; of several
    functions the first one, and of several features the first one on the grid."""

    kind = "fields"

    def __init__(self, settings: TaskSettings, data: Data, axes: int) -> None:
        super().__init__(settings, data)
        self._axes = axes
        self.sample, self.worst = SelectedRows(FUNCTIONS), SelectedRows(FUNCTIONS)
        self._feature = next((column.name for column in data.features if column.shape), None)

    def update(self, output: Tensor, batch: Batch) -> None:
        encoded = batch[self.data.target.name].cpu().double()
        true = np.asarray(self.data.decode(encoded.numpy()))
        predicted = np.asarray(self.data.decode(output.double().reshape(encoded.shape).numpy()))
        error, rows = (predicted - true).reshape(len(true), -1), row_numbers(batch)
        relative = _relative(error, true)
        losses = _relative(output.double().reshape(encoded.shape).numpy() - encoded.numpy(), encoded.numpy())
        self.sums.add("rows", np.array(len(true)))
        self.slices.update(batch, {"loss": losses})
        self._offer(self.outcomes, batch, {"relative_l2": relative, "mse": np.square(error).mean(1), "loss": losses})

        def values(places: np.ndarray) -> dict[str, np.ndarray]:
            lines = {"true": self._lines(true[places]), "predicted": self._lines(predicted[places]), "relative_l2": relative[places]}
            if self._feature is None:
                return lines
            column = batch[self._feature]
            feature = np.asarray(self.data.raw(self._feature, column[torch.from_numpy(places).to(column.device)].cpu().numpy()))
            return {**lines, "feature": self._lines(feature)}

        self.sample.offer(sampling_keys(rows), rows, values)
        self.worst.offer(-np.nan_to_num(relative, nan=np.inf), rows, values)

    def tables(self) -> dict[str, Columns]:
        return {"fields": _point_table(self.sample), "worst_fields": _point_table(self.worst)}

    def summary(self) -> dict[str, Any]:
        return {"target": self.data.target.name, "feature": self._feature or "", "rows": int(self.sums.arrays.get("rows", 0))}

    def _lines(self, functions: np.ndarray) -> np.ndarray:
        """Float32 of shape (rows, points), from functions of shape (rows, *grid) or (rows, *grid, several)."""
        functions = functions[..., 0] if functions.ndim > self._axes + 1 else functions
        line = functions[:, functions.shape[1] // 2] if self._axes == 2 else functions
        return line[:, :: -(-line.shape[1] // MOST_POINTS)].astype(np.float32)


def _relative(error: np.ndarray, true: np.ndarray) -> np.ndarray:
    """The norm of each row's error by that of its truth, shape (rows,)."""
    norms = (np.linalg.norm(values.reshape(len(true), -1), axis=1) for values in (error, true))
    return np.divide(*norms)


def _point_table(selected: SelectedRows) -> Columns:
    """One row for each row and point; `place` goes from 0 to 1 along the axis."""
    if not selected.columns:
        return {}
    count, points = selected.columns["true"].shape
    table: dict[str, list[Any]] = {
        "row": np.repeat(selected.rows, points).tolist(),
        "relative_l2": np.repeat(selected.columns["relative_l2"], points).tolist(),
        "place": np.tile(np.arange(points) / points, count).tolist(),
    }
    for name in ("feature", "true", "predicted"):
        if name in selected.columns:
            table[name] = selected.columns[name].reshape(-1).tolist()
    return table


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
